"""Sphinx configuration."""

from __future__ import annotations

import prefixroute

project = "prefixroute"
author = "prefixroute maintainers"
release = version = prefixroute.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.intersphinx"]
exclude_patterns = ["_build"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

# Signatures carry the types; the inventories of others are not needed to build offline.
intersphinx_mapping: dict[str, tuple[str, None]] = {}
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True  # dataclass fields are members too: documented once
# `Request` is what a workload yields and what a policy sees; the text around a reference says which.
suppress_warnings = ["ref.python"]

html_theme = "furo"
html_title = "prefixroute"
