"""The site: `make docs` builds it into build/docs, and fails on a warning."""

# ruff: noqa: INP001 - read by Sphinx, no part of the package

import sys
from pathlib import Path

import redraft

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "redraft"
author = "The redraft founders"
copyright = author  # noqa: A001 - Sphinx's name
version = release = redraft.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.viewcode",
    "sphinx_click",
    "sphinx_copybutton",
    "redraft_site",
]
exclude_patterns = ["adr/0000-template.md"]
default_role = "house"
smartquotes = False

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3

autosummary_generate = False
python_maximum_signature_line_length = 88
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True}
autodoc_preserve_defaults = True
autodoc_mock_imports = ["dspy", "instructor", "langchain_core", "pydantic_ai", "torch", "transformers"]

nitpicky = True
nitpick_ignore_regex = [
    ("py:.*", r"(?!redraft).*"),  # types of others, and of classes that are named where only a type checker looks
    ("py:class", r"redraft(\.\w+){2,}"),  # what is returned is often of a class that has no page
]

html_theme = "furo"
pygments_dark_style = "github-dark"
html_title = f"redraft {version}"
copybutton_prompt_text = "$ "
copybutton_exclude = ".linenos, .gp, .go"
