"""The page: a run, or all that a store has, as HTML that asks nobody for anything.

`story` makes plain values of a run's events, `render` makes HTML of those; neither knows a web server.
"""
