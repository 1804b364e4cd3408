"""Findings as SARIF 2.1.0, which code hosts and editors show beside the file."""

from __future__ import annotations

from typing import Any

from prefixroute.lint import RULES, LintFinding, LintReport

VERSION = "2.1.0"
SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def sarif(report: LintReport, path: str, version: str) -> dict[str, Any]:
    """Return a SARIF log of one run.

    Args:
        report: what was found.
        path: of the log that was looked at, as results name it.
        version: of prefixroute.
    """
    rules = [
        {
            "id": rule.id,
            "name": rule.name,
            "shortDescription": {"text": rule.title},
            "help": {"text": rule.remedy},
            "defaultConfiguration": {"level": rule.level},
        }
        for rule in RULES.values()
    ]
    driver = {"name": "prefixroute", "semanticVersion": version, "rules": rules}
    places = {rule["id"]: at for at, rule in enumerate(rules)}
    results = [_result(finding, path, places[finding.rule.id]) for finding in report.findings]
    return {"$schema": SCHEMA, "version": VERSION, "runs": [{"tool": {"driver": driver}, "results": results}]}


def _result(finding: LintFinding, path: str, place: int) -> dict[str, Any]:
    location: dict[str, Any] = {"artifactLocation": {"uri": path.replace("\\", "/")}}
    if finding.line is not None:
        location["region"] = {"startLine": finding.line}
    properties = {"evidence": dict(finding.evidence), "usd_per_month": finding.usd_per_month}
    return {
        "ruleId": finding.rule.id,
        "ruleIndex": place,
        "level": finding.rule.level,
        "message": {"text": f"{finding.message}. {finding.remedy}"},
        "locations": [{"physicalLocation": location}],
        "properties": properties,
    }
