"""What a study found, as a page (HTML, works offline), a picture (PNG) and JSON. Drawing needs the extra ``report``."""

from __future__ import annotations

from prefixroute.report.study import Study

__all__ = ["Study"]
