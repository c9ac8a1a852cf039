"""What runs inside the jail: standard library only, and nothing of redraft but the modules of this package.

The host sends these modules to the child, which has no file of redraft to read (`redraft.sandbox.spawn`).
"""
