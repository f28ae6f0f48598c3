import re
from dataclasses import replace
from html.parser import HTMLParser

from gnnperf.report.page import to_html

VOID = {"meta", "link", "br", "img"}


class Checker(HTMLParser):
    """Sees that tags are closed in order, and collects attributes and text."""

    def __init__(self):
        super().__init__()
        self.open, self.links, self.tags, self.text = [], [], set(), []

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.links += [value for name, value in attrs if name in ("href", "src")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def check(page):
    checker = Checker()
    checker.feed(page)
    checker.close()
    assert checker.open == []
    return checker


def test_the_page_is_whole_and_needs_nothing_else(predictions):
    page = to_html("small", predictions)
    checker = check(page)
    assert checker.links == []
    assert not checker.tags & {"script", "link", "iframe", "img"}
    assert not re.search(r"https?://|@import|url\(", page)
    text = " ".join(checker.text)
    for word in ("rtx-4090", "t4", "zero-shot", "blocks.*.conv", "2x8x16x16", "(overhead)", "90 % interval"):
        assert word in text


def test_everything_is_escaped(predictions):
    evil = '<script>alert("x")</script>&'
    graph = predictions[0].graph
    nodes = tuple(replace(node, module=evil, name=evil + node.name) for node in graph.nodes)
    device = replace(predictions[0].device, id=evil, name=evil)
    p = replace(predictions[0], graph=replace(graph, nodes=nodes), device=device, warnings=(evil,))
    checker = check(to_html(evil, [p]))
    assert "script" not in checker.tags
    assert evil in "".join(checker.text)


def test_negative_overhead_is_told(predictions):
    assert "less 0.0100 ms of overlap" in to_html("x", [replace(predictions[0], overhead_ms=-0.01)])
