"""`schedule:` in a contract: what may be written, what is said about the rest, and what it does not touch."""

from __future__ import annotations

from datetime import date, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detent.contract import bindings_digest, contract_digest, from_document, load, long_form
from detent.contract.schedule import (
    CRON_CHARACTERS_MAX,
    MACROS,
    BadCron,
    Cron,
    Every,
    Schedule,
    parse_cron,
    schedule_text,
)
from tests.contract.contracts import findings, marked, only
from tests.contract.test_findings import LONG_HEAD

EPOCH = date(1970, 1, 1)


def text(schedule: str) -> str:
    return f"name: a\nschedule: {schedule}\nsteps: [{{id: s, run: {{shell: x}}}}]\n"


def schedule(written: str) -> Schedule:
    found = load(text(written).encode()).schedule
    assert found is not None
    return found


def test_a_contract_without_a_schedule_has_none() -> None:
    assert load(b"name: a\nsteps: []").schedule is None


def test_a_period_with_and_without_an_offset() -> None:
    assert schedule("{every: 15m}") == Schedule(Every(900_000))
    assert schedule("{every: 1h30m, offset: 90s, overlap: queue}") == Schedule(
        Every(5_400_000, 90_000), overlap="queue"
    )
    assert schedule("{every: 1}") == Schedule(Every(1_000))


def test_a_cron_line_with_and_without_a_zone() -> None:
    found = schedule("{cron: '0 6 * * 1-5', timezone: Europe/Berlin}")
    assert found == Schedule(parse_cron("0 6 * * 1-5"), "Europe/Berlin")
    assert isinstance(found.rule, Cron)
    assert (found.rule.minutes, found.rule.hours, found.rule.weekdays) == ((0,), (6,), (1, 2, 3, 4, 5))
    assert schedule("{cron: '@daily'}").timezone == "UTC"


@pytest.mark.parametrize(
    "written",
    [
        *("{every: 15m}", "{every: 1h30m, offset: 90s, overlap: queue}", "{cron: '@weekly'}"),
        "{cron: '  */5   6-8 * JAN,mar sun  ', timezone: America/Argentina/Buenos_Aires, overlap: skip}",
    ],
)
def test_both_forms_say_the_same(written: str) -> None:
    contract = load(text(written).encode())
    again = from_document(long_form(contract))
    assert again == contract
    assert again.schedule == contract.schedule


def test_the_long_form_has_it_beside_the_definition() -> None:
    contract = load((LONG_HEAD + "  schedule: {every: 2h}\n  steps: []\n").encode())
    assert contract.schedule == Schedule(Every(7_200_000))
    found, place = marked(LONG_HEAD + "  schedule: {every: ➤soon}\n  steps: []\n")
    finding = only(found)
    assert (finding.message, (finding.line, finding.column)) == ("a period cannot be 'soon'", place)


def test_a_schedule_changes_no_digest_and_no_id() -> None:
    """When is not what: moving a run to another hour leaves every step what it was"""
    plain = load(b"name: a\nsteps: [{id: s, run: {shell: x}}]\n")
    for written in ("{every: 15m}", "{cron: '@daily'}"):
        timed = load(text(written).encode())
        assert contract_digest(timed) == contract_digest(plain)
        assert bindings_digest(timed) == bindings_digest(plain)
        assert [step.step_id for step in timed.steps] == [step.step_id for step in plain.steps]
        assert timed != plain


def test_the_place_of_a_schedule_is_kept_for_the_reader_of_time_zones() -> None:
    place = load(text("{every: 15m}").encode()).schedule_place
    assert place is not None
    assert (place.line, place.column) == (2, 11)


WRONG = [
    ("➤5m", "schedule must be a mapping (key: value), not '5m'", "write `schedule: {every: 15m}`"),
    ("➤{}", "schedule says neither every nor cron", "write `schedule: {every: 15m}`"),
    ("➤{every: 5m, cron: '@daily'}", "schedule has every and cron; it needs one of them", "write"),
    ("{➤evry: 5m}", "unknown key 'evry' in schedule", "did you mean 'every'?"),
    ("{every: ➤soon}", "a period cannot be 'soon'", "write it as 30s, 15m"),
    ("{every: ➤0.5s}", "a period must be at least 1000 ms, got '0.5s'", "at least 1s"),
    ("{every: ➤367d}", "a period of '367d' is longer than 366 days", "'0 0 1 1 *' is once a year"),
    ("{every: 5m, offset: ➤5m}", "an offset of 5m is not within a period of 5m", "write a shorter one"),
    ("{every: 5m, offset: ➤-1}", "an offset must be at least 0 ms, got -1", "shorter than the period"),
    ("{every: 5m, ➤timezone: UTC}", "timezone means nothing without cron", "the same in every time zone"),
    ("{cron: '@daily', ➤offset: 5m}", "offset means nothing without every", "say it in the cron line"),
    ("{cron: '@daily', timezone: ➤'../etc'}", "timezone cannot be '../etc'", "Europe/Berlin"),
    ("{cron: '@daily', timezone: ➤1}", "timezone cannot be 1", "Europe/Berlin"),
    ("{cron: '@daily', overlap: ➤queu}", "there is no overlap 'queu'", "did you mean 'queue'?"),
    ("{cron: ➤5}", "cron must be text, not 5", "put it in quotes"),
    ("{cron: ➤'0 25 * * *'}", "the hour cannot be 25 in cron '0 25 * * *'", "the hour goes from 0 to 23"),
    ("{cron: ➤'60 * * * *'}", "the minute cannot be 60 in cron '60 * * * *'", "the minute goes from 0 to 59"),
    ("{cron: ➤'0 0 0 * *'}", "the day of month cannot be 0 in cron '0 0 0 * *'", "goes from 1 to 31"),
    ("{cron: ➤'0 0 * 13 *'}", "the month cannot be 13 in cron '0 0 * 13 *'", "goes from 1 to 12, or jan to dec"),
    ("{cron: ➤'0 0 * * 8'}", "the day of week cannot be 8 in cron '0 0 * * 8'", "goes from 0 to 7, or sun to sat"),
    ("{cron: ➤'0 0 * * mo'}", "the day of week cannot be 'mo' in cron '0 0 * * mo'", "sun to sat"),
    ("{cron: ➤'0 0 L * *'}", "the day of month cannot be 'l' in cron '0 0 L * *'", "a number, a-b"),
    ("{cron: ➤'0 0 * * 5#2'}", "the day of week cannot be '5#2' in cron '0 0 * * 5#2'", "a number, a-b"),
    ("{cron: ➤'0,,5 0 * * *'}", "the minute cannot be '' in cron '0,,5 0 * * *'", "a number, a-b"),
    ("{cron: ➤'5/15 * * * *'}", "a step needs a range before it: '5/15' in cron '5/15 * * * *'", "write 5-59/15"),
    ("{cron: ➤'*/0 * * * *'}", "the step of the minute cannot be 0 in cron '*/0 * * * *'", "from 1 to 59"),
    ("{cron: ➤'0 0 * * */7'}", "the step of the day of week cannot be 7 in cron '0 0 * * */7'", "from 1 to 6"),
    ("{cron: ➤'*/90 * * * *'}", "the step of the minute cannot be 90 in cron '*/90 * * * *'", "from 1 to 59"),
    ("{cron: ➤'0 22-2 * * *'}", "the range '22-2' of the hour runs backwards in cron '0 22-2 * * *'", "22-23,0-2"),
    ("{cron: ➤'* * * *'}", "cron '* * * *' has 4 fields, not five", "write five: minute, hour"),
    ("{cron: ➤'0 * * * * *'}", "cron '0 * * * * *' has 6 fields, not five", "write five: minute, hour"),
    ("{cron: ➤'@reboot'}", "there is no schedule '@reboot'", "one of @hourly, @daily"),
    ("{cron: ➤'0 0 30 2 *'}", "cron '0 0 30 2 *' never fires: no such month has a day 30", "choose an earlier day"),
    ("{cron: ➤'0 0 31 2,4,6 */2'}", "cron '0 0 31 2,4,6 */2' never fires: no such month has a day 31", "choose"),
]  # fmt: skip


@pytest.mark.parametrize(("written", "message", "hint"), WRONG, ids=[row[1][:60] for row in WRONG])
def test_what_is_wrong_is_said_with_its_place_and_a_way_out(written: str, message: str, hint: str) -> None:
    plain, place = marked(text(written))
    finding = only(plain)
    assert (finding.message, (finding.line, finding.column)) == (message, place)
    assert hint in finding.hint


@pytest.mark.parametrize(
    ("written", "messages"),
    [
        (
            "{cron: '99 25 * * mo', overlap: queu}",
            [
                "the minute cannot be 99 in cron '99 25 * * mo'",
                "the hour cannot be 25 in cron '99 25 * * mo'",
                "the day of week cannot be 'mo' in cron '99 25 * * mo'",
                "there is no overlap 'queu'",
            ],
        ),
        (
            "{every: 5m, offset: 6m, overlap: queu}",
            ["an offset of 6m is not within a period of 5m", "there is no overlap 'queu'"],
        ),
        (
            "{every: 5m, timezone: UTC, offset: 6m}",
            ["timezone means nothing without cron", "an offset of 6m is not within a period of 5m"],
        ),
    ],
)
def test_everything_that_is_wrong_is_said_at_once(written: str, messages: list[str]) -> None:
    assert [finding.message for finding in findings(text(written))] == messages


def test_a_star_without_quotes_is_told_to_wear_some() -> None:
    assert "in quotes" in findings(text("{cron: * * * * *}"))[0].hint


@pytest.mark.parametrize("key", ["cron", "every"])
def test_a_rule_at_the_top_is_told_where_it_belongs(key: str) -> None:
    assert only(f"name: a\n{key}: 5m\nsteps: []").hint == f"write `schedule: {{{key}: ...}}`"


def test_a_line_of_any_length_is_refused_early() -> None:
    with pytest.raises(BadCron, match=f"at most {CRON_CHARACTERS_MAX}"):
        parse_cron("0," * CRON_CHARACTERS_MAX + "0 * * * *")


@pytest.mark.parametrize(
    ("line", "field", "values"),
    [
        ("5,1,3-4 * * * *", "minutes", (1, 3, 4, 5)),
        ("*/20 * * * *", "minutes", (0, 20, 40)),
        ("10-30/10 * * * *", "minutes", (10, 20, 30)),
        ("0 0 1 FEB-apr *", "months", (2, 3, 4)),
        ("0 0 1 */5 *", "months", (1, 6, 11)),
        ("0 0 * * 7", "weekdays", (0,)),
        ("0 0 * * fri-sun", "weekdays", (0, 5, 6)),
        ("0 0 * * 5-7", "weekdays", (0, 5, 6)),
        ("0 0 * * 0-0", "weekdays", (0,)),
        ("0 0 * * */2", "weekdays", (0, 2, 4, 6)),
        ("0 0 * * *", "weekdays", (0, 1, 2, 3, 4, 5, 6)),
        ("00 06 * * *", "hours", (6,)),
    ],
)
def test_the_values_of_a_field(line: str, field: str, values: tuple[int, ...]) -> None:
    assert getattr(parse_cron(line), field) == values


@pytest.mark.parametrize(
    ("line", "either"),
    [
        ("0 0 13 * 5", True),
        ("0 0 13 * *", False),
        ("0 0 * * 5", False),
        ("0 0 */2 * 5", False),
        ("0 0 13 * */2", False),
    ],
)
def test_two_restricted_day_fields_mean_either_of_them(line: str, either: bool) -> None:
    """As in Vixie's cron: a field that begins with a star is not restricted"""
    assert parse_cron(line).either_day is either


def test_a_word_stands_for_its_line() -> None:
    for word, line in MACROS.items():
        said, meant = parse_cron(word), parse_cron(line)
        assert (said.text, said.minutes_of_day(), said.days, said.months, said.weekdays) == (
            *(word, meant.minutes_of_day(), meant.days, meant.months),
            meant.weekdays,
        )


@given(
    st.sampled_from(["0 0 29 2 *", "0 0 31 * *", "0 0 13 * 5", "0 0 */3 */2 1-3", "0 0 1 1 *", "0 0 * * 0"]),
    st.integers(0, 60_000),
)
def test_the_next_day_is_the_first_that_fits(line: str, day: int) -> None:
    cron = parse_cron(line)
    found = cron.next_day(day)
    assert found is not None
    assert cron.fits(EPOCH + timedelta(days=found))
    assert not any(cron.fits(EPOCH + timedelta(days=other)) for other in range(day, found))


def test_the_calendar_ends_with_the_year_9998() -> None:
    assert parse_cron("0 0 1 1 *").next_day((date(9998, 1, 2) - EPOCH).days) is None


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("{every: 90m}", "every 1h30m"),
        ("{every: 1h, offset: 5m, overlap: queue}", "every 1h, 5m after, overlapping runs wait"),
        ("{cron: '0 6 * * 1-5', timezone: Europe/Berlin}", "cron 0 6 * * 1-5 in Europe/Berlin"),
    ],
)
def test_a_schedule_in_one_line(written: str, said: str) -> None:
    assert schedule_text(schedule(written)) == said
