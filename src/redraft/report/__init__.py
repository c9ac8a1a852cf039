"""Reports: what a run left behind, as text for people and as plain values for programs."""
