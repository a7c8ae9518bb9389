"""The certificate: checks, what each found, and the verdict. It refuses to know how the evidence was gathered."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Certificate", "Check"]


@dataclass(frozen=True)
class Check:
    """One piece of evidence.

    passed: False refutes losslessness; None: it could not be run, and `finding` says why. figures: what was measured.
    """

    name: str
    claim: str
    passed: bool | None
    finding: str
    figures: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def outcome(self) -> str:
        """In a word."""
        return {True: "passed", False: "REFUTED", None: "not run"}[self.passed]


@dataclass(frozen=True)
class Certificate:
    """What was examined, and every check. A rule that gives up losslessness can never be certified as lossless."""

    subject: Mapping[str, Any]
    checks: tuple[Check, ...]
    rule_is_lossless: bool = True

    @property
    def lossless(self) -> bool:
        """No check refuted it, at least one was run, and the rule does not itself disclaim it."""
        outcomes = [check.passed for check in self.checks]
        return self.rule_is_lossless and True in outcomes and False not in outcomes

    @property
    def verdict(self) -> str:
        """One sentence."""
        if not self.rule_is_lossless:
            return "LOSSY: this rule changes the distribution of the text, and says so in its name."
        if self.lossless:
            return f"Nothing refutes that the text is distributed as the target's own.{self._not_run}"
        failed = ", ".join(check.name for check in self.checks if check.passed is False)
        return f"Losslessness is REFUTED by: {failed}." if failed else "Nothing could be checked."

    @property
    def _not_run(self) -> str:
        """The checks that say nothing."""
        silent = ", ".join(check.name for check in self.checks if check.passed is None)
        return f" Not run: {silent}." if silent else ""

    def to_json(self) -> dict[str, Any]:
        """A JSON object with at least `lossless` and `checks`."""
        return {
            "lossless": self.lossless,
            "verdict": self.verdict,
            "subject": dict(self.subject),
            "checks": [
                {
                    "name": check.name,
                    "claim": check.claim,
                    "passed": check.passed,
                    "finding": check.finding,
                    "figures": dict(check.figures),
                    "seconds": check.seconds,
                }
                for check in self.checks
            ],
        }

    def to_html(self) -> str:
        """One page that needs nothing else; all text is escaped."""
        colour = "#1a7f37" if self.lossless else "#b42318"
        subject = "".join(
            f"<tr><th>{_text(name)}</th><td>{_text(value)}</td></tr>" for name, value in self.subject.items()
        )
        checks = "".join(_section(check) for check in self.checks)
        return _PAGE.format(colour=colour, verdict=_text(self.verdict), subject=subject, checks=checks)


def _section(check: Check) -> str:
    figures = html.escape(json.dumps(dict(check.figures), indent=1, ensure_ascii=False))
    mark = {True: "ok", False: "bad", None: "none"}[check.passed]
    return (
        f'<section class="{mark}"><h2>{_text(check.name)} <span>{_text(check.outcome)}</span></h2>'
        f"<p>{_text(check.claim)}</p><p><b>{_text(check.finding)}</b> ({check.seconds:.1f} s)</p>"
        f"<details><summary>figures</summary><pre>{figures}</pre></details></section>"
    )


def _text(value: Any) -> str:
    return html.escape(str(value))


_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1"><title>truedraft certificate</title>
<style>
:root {{ color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }}
body {{ max-width: 46rem; margin: 2rem auto; padding: 0 1rem; }}
.verdict {{ font-size: 1.25rem; color: {colour}; font-weight: 600; }}
table {{ border-collapse: collapse; }} th {{ text-align: left; padding: 0 1rem 0 0; font-weight: 500; opacity: .7; }}
section {{ border-left: 4px solid #888; padding: .1rem 1rem; margin: 1.2rem 0; }}
section.ok {{ border-color: #1a7f37; }} section.bad {{ border-color: #b42318; }}
h2 {{ font-size: 1.05rem; }} h2 span {{ float: right; }} pre {{ overflow-x: auto; font-size: .8rem; }}
</style>
<h1>Certificate of losslessness</h1><p class="verdict">{verdict}</p><table>{subject}</table>{checks}</html>
"""
