"""A process that does a batch of items through a provider's jobs, until it is killed or done: `FOLDER URL ITEMS`."""

import asyncio
import sys
from pathlib import Path

from redraft import Batch, Predict, SqliteStore
from redraft.lm.openai import OpenAILM
from redraft.lm.provider_batch import ProviderBatchLM, Rounds


async def main(folder, url, n):
    inner = OpenAILM("test", base_url=url, api_key="k")
    lm = ProviderBatchLM(inner, path=folder / "batches.db", rounds=Rounds(quiet=0.05, poll=(0.01, 0.05)))
    with SqliteStore(folder / "runs.db") as store:
        work = Batch(Predict("task -> answer", lm=lm), concurrency=50, store=store, batch_id="victim")
        async for item in work.as_completed({"id": i, "task": f"say word{i}"} for i in range(n)):
            print(item.result.answer.split()[-1], flush=True)
    lm.close()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
