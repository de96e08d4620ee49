"""Formulas as MathML, made when the documentation is built, so that pages need no script from the network."""

import re
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx

# The name of a function, and what follows unless that is a parenthesis or another operator.
FUNCTION = re.compile(r"(<mi>(?:log|exp|sin|cos|tan|sinh|cosh|tanh|det|max|min|sup|inf|lim|arg|tr)</mi>)(?=<m(?!o\b))")
# A letter, number or sign with a superscript. With a font that has no measures for formulas, as on many phones,
# browsers put the superscript on top of it; of a lower letter it is at its height with every font.
BASE = re.compile(r"(<ms(?:ubs)?up>)(<(m[ion])\b[^>]*>[^<]*</\3>)")


def drawn(formula: str, display: str = "inline") -> str:
    """Return a formula as MathML, with the thin space after function names that the converter omits."""
    made = FUNCTION.sub(r'\1<mspace width="0.17em"/>', convert(formula, display=display))
    made = made.replace("<mo>&#x0007C;</mo>", '<mo stretchy="false">&#x0007C;</mo>')  # both bars of |x| alike
    return BASE.sub(r'\1<mpadded height="0.45em">\2</mpadded>', made)


def visit_inline(self: Any, node: nodes.math) -> None:
    """Write an inline formula."""
    self.body.append(drawn(node.astext()))
    raise nodes.SkipNode


def visit_block(self: Any, node: nodes.math_block) -> None:
    """Write a displayed formula, with a number if it has a label."""
    self.body.append(self.starttag(node, "div", CLASS="formula"))
    self.body.append(drawn(node.astext(), "block"))
    if node.get("number"):
        self.body.append(f'<span class="number">({node["number"]})</span>')
    self.body.append("</div>\n")
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the renderer; conf.py chooses it by ``html_math_renderer``."""
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
