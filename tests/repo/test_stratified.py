from __future__ import annotations

from stratified import stratified


def chosen(names: list[str], share: int = 3) -> list[str]:
    return stratified(names, share, name=str, stratum=lambda one: one[0])


NAMES = [f"{family}{number}" for family in "abc" for number in range(60)]


def test_a_new_case_changes_no_other_choice() -> None:
    before = chosen(NAMES)
    for position in (0, 70, len(NAMES)):
        after = chosen([*NAMES[:position], "a-new", *NAMES[position:]])
        assert [name for name in after if name != "a-new"] == before


def test_every_stratum_has_about_its_share() -> None:
    for family in "abc":
        assert 10 <= sum(name[0] == family for name in chosen(NAMES)) <= 30


def test_a_small_stratum_is_not_left_out() -> None:
    assert len(chosen(["a1", "b1", "c1"], share=1000)) == 3
