"""Other people's frameworks: each door is imported by its own name and needs its own extra."""
