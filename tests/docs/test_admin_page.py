"""docs/admin.md names each part of the administration and each of its methods."""

from __future__ import annotations

import pytest
from tests.docs.test_readme import ROOT

from orbitmq.admin import Admin
from orbitmq.testing import simulated_runtime

PAGE = (ROOT / "docs" / "admin.md").read_text(encoding="utf-8")
PARTS = {name: part for name, part in vars(Admin(runtime=simulated_runtime())).items() if name[0] != "_"}


@pytest.mark.parametrize("name", PARTS)
def test_a_part_is_on_the_page_with_its_methods(name: str) -> None:
    assert f"`admin.{name}`" in PAGE
    methods = [method for method in dir(PARTS[name]) if method[0] != "_"]
    assert [method for method in methods if f"`{method}`" not in PAGE] == []
