"""Batches: many items through one module, each a run of its own, many at once, resumable."""

from redraft.batch.cluster import Cluster
from redraft.batch.item import BatchItem
from redraft.batch.work import Batch, batch, batch_as_completed

__all__ = ["Batch", "BatchItem", "Cluster", "batch", "batch_as_completed"]
