"""Sphinx configuration."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import pkgutil
import re
from typing import Any

from sphinx.application import Sphinx
from sphinx.util.logging import getLogger

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

html_theme = "furo"
html_title = f"prefixroute {release}"


def _public() -> dict[str, Any]:
    """Return what the package and its sub-packages list as public, by dotted name."""
    names = ["prefixroute", *(f"prefixroute.{part.name}" for part in pkgutil.iter_modules(prefixroute.__path__))]
    modules = [importlib.import_module(name) for name in names if not name.endswith(("._core", ".__main__", ".cli"))]
    return {
        f"{module.__name__}.{name}": getattr(module, name)
        for module in modules
        for name in getattr(module, "__all__", ())
    }


def _documented(name: str) -> Any:
    """Return the object behind a documented name. A function may have the name of the module it lives in."""
    found: Any = prefixroute
    for part in name.split(".")[1:]:
        path = f"{getattr(found, '__name__', '')}.{part}"
        if inspect.ismodule(found) and not hasattr(found, part) and importlib.util.find_spec(path):
            found = importlib.import_module(path)
        else:
            found = getattr(found, part, None)
    return found


VERSIONS = """

This is the documentation of one version; <a href="../index.html">all versions</a> that were built lie beside it.
"""


def _add_navigation(app: Sphinx, page: str, source: list[str]) -> None:
    """Make the site's navigation of the list of all pages in index.md, which GitHub shows as it stands."""
    del app
    if page != "index":
        return
    _, _, listed = source[0].partition("## All pages")
    groups = re.findall(r"^- \*\*(.+?)\*\*: (.*?)(?=^- |\Z)", listed, re.MULTILINE | re.DOTALL)
    trees = (
        "\n".join(["```{toctree}", ":hidden:", ":maxdepth: 1", f":caption: {caption}", "", *names, "```"])
        for caption, links in groups
        if (names := re.findall(r"\]\((\S+)\.md\)", links))
    )
    source[0] += VERSIONS + "\n" + "\n\n".join(trees) + "\n"


def _check_reference(app: Sphinx, failed: Exception | None) -> None:
    """Warn of each public class and function that the reference leaves out; warnings are errors in `make docs`."""
    if failed is not None:
        return
    objects = [_documented(name) for name in app.env.domaindata["py"]["objects"]]
    known = {id(found) for found in objects if found is not None}
    for name, found in sorted(_public().items()):
        if (inspect.isclass(found) or inspect.isfunction(found)) and id(found) not in known:
            getLogger(__name__).warning("%s is public and not in the reference", name)


def setup(app: Sphinx) -> None:
    """Add the navigation, and check the reference at the end of each build."""
    app.connect("source-read", _add_navigation)
    app.connect("build-finished", _check_reference)
