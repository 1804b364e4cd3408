"""What a study found, in sentences, tables, pages (HTML, works offline), pictures (PNG) and JSON.

Numbers come from :mod:`prefixroute.sim` and :mod:`prefixroute.advise`; every word and column is made here, once.
Drawing needs the extra ``report``.
"""

from __future__ import annotations

from prefixroute.report.answer import AdviceAnswer, advice_dict, answer
from prefixroute.report.sentences import finding as finding_text
from prefixroute.report.sheet import Sheet
from prefixroute.report.text import advice_text

__all__ = ["AdviceAnswer", "Sheet", "advice_dict", "advice_text", "answer", "finding_text"]
