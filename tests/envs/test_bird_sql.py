"""The environment bird_sql: how a query is extracted, what it may do, and how results compare."""

import sqlite3
import time
from contextlib import closing
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from gymcli.envs import load_generator
from gymcli.envs.bird_sql import BirdSQL, QueryTask
from gymcli.envs.bird_sql.database import NOW, Database, QueryError
from gymcli.errors import VerifierError
from tests.envs.episodes import answered, played, row_of_file, says, scored

generator = load_generator("bird_sql")

NAME = "bird_sql"
CONTEXT = """
BEGIN TRANSACTION;
CREATE TABLE boats (boat_id INTEGER PRIMARY KEY, name TEXT, length REAL, built TEXT);
INSERT INTO boats VALUES (1, 'Auk', 7.0, '2001-05-09'), (2, 'Tern', 9.5, '2011-02-01');
INSERT INTO boats VALUES (3, 'Gull', 7.0, '2011-10-30'), (4, 'two--masts; old', NULL, NULL);
COMMIT;
"""
GOLD = "SELECT name, length FROM boats WHERE length < 9"
ENDLESS = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) "


def task(**fields):
    return {"sql_context": CONTEXT, "gt_sql": GOLD, **fields}


def block(query):
    return f"```sql\n{query}\n```"


def score_of(text, *, options=None, **fields):
    return scored(answered(NAME, task(**fields), text), **options or {})


def outcome(query, *, options=None, **fields):
    """Return the reward and the reason for a query."""
    rollout = score_of(block(query), options=options, **fields)
    return rollout.reward, rollout.details["reason"]


def result_of(query, context=CONTEXT):
    with closing(Database(context)) as database:
        return database.read(query)


# Extracting the query


@pytest.mark.parametrize(
    ("text", "query"),
    [
        pytest.param(block(GOLD), GOLD, id="block"),
        pytest.param(f"So:\n{block('SELECT 2')}\nor\n{block(GOLD)} Done.", GOLD, id="the last"),
        pytest.param(f"```SQL {GOLD}```", GOLD, id="upper case, one line"),
        pytest.param(f"{block(GOLD)}\n{block('')}", GOLD, id="last one empty"),
        pytest.param(block(f"**Query:**\n{GOLD}"), GOLD, id="heading in bold"),
        pytest.param(block(f"**The** query: **it** {GOLD}"), GOLD, id="bold twice"),
        pytest.param(block(f"-- **gold**\n{GOLD}"), f"-- **gold**\n{GOLD}", id="bold comment"),
        pytest.param(block("1 + 1;"), None, id="no letter"),
        pytest.param(f"```\n{GOLD}\n```", None, id="block without sql"),
        pytest.param(f"```sqlite\n{GOLD}\n```", None, id="block of another language"),
        pytest.param(f"```sql\n{GOLD}", None, id="not closed"),
        pytest.param(f"{block(GOLD)}\n```sql\nSELECT 2", GOLD, id="second one not closed"),
        pytest.param(f"```sql\nSELECT 2\nor\n{block(GOLD)}", GOLD, id="first one not closed"),
        pytest.param(f"{block(GOLD)}That is it", GOLD, id="text after the fence"),
        pytest.param(GOLD, None, id="no block"),
        pytest.param("", None, id="nothing"),
        pytest.param("```sql" * 50_000, None, id="many fences"),
    ],
)
def test_query_is_the_last_closed_block(text, query):
    rollout = score_of(text)

    assert rollout.answer == query
    assert rollout.reward == float(query is not None and query.endswith(GOLD))
    assert (rollout.details["reason"] == "no_answer") == (query is None)


def test_empty_answer_is_not_scored_as_select_1():
    """The reference ran `SELECT 1` for an answer without a query until version 0.5."""
    rollout = score_of("", gt_sql="SELECT 1")

    assert (rollout.reward, rollout.details["reason"]) == (0.0, "no_answer")
    assert outcome("SELECT 1", gt_sql="SELECT 1") == (1.0, "correct")


# Comparing results


@pytest.mark.parametrize(
    ("query", "reward"),
    [
        pytest.param(GOLD, 1.0, id="gold"),
        pytest.param(f"{GOLD};", 1.0, id="semicolon"),
        pytest.param(f"{GOLD} ORDER BY name DESC", 1.0, id="order of rows"),
        pytest.param(f"{GOLD} UNION ALL {GOLD}", 1.0, id="rows twice"),
        pytest.param("SELECT name AS boat, 7 FROM boats WHERE length = 7", 1.0, id="7 is 7.0"),
        pytest.param("VALUES ('Auk', 7), ('Gull', 7)", 1.0, id="result written out"),
        pytest.param("SELECT length, name FROM boats WHERE length < 9", 0.0, id="column order"),
        pytest.param("SELECT name FROM boats WHERE length < 9", 0.0, id="column missing"),
        pytest.param(f"{GOLD} AND name = 'Auk'", 0.0, id="row missing"),
        pytest.param("SELECT name, length FROM boats", 0.0, id="row too many"),
        pytest.param("SELECT upper(name), length FROM boats WHERE length < 9", 0.0, id="case"),
        pytest.param("SELECT name, '7.0' FROM boats WHERE length < 9", 0.0, id="text, no number"),
    ],
)
def test_results_are_compared_as_sets_of_rows(query, reward):
    assert outcome(query) == (reward, "correct" if reward else "wrong_result")


@pytest.mark.parametrize(
    "query",
    [
        pytest.param(f"-- the boats\n{GOLD} -- all of them", id="lines"),
        pytest.param(f"{GOLD.replace('FROM', '-- two columns' + chr(10) + 'FROM')}", id="within"),
        pytest.param(f"/* -- */ {GOLD} /* ; */;", id="blocks"),
        pytest.param(f"{GOLD} AND name <> '-- Tern'", id="none, a text"),
    ],
)
def test_comments_are_read_as_sqlite_reads_them(query):
    """The reference took everything after the first `--` for a comment until version 0.5."""
    assert outcome(query) == (1.0, "correct")


def test_texts_keep_their_spaces():
    """The reference made one space of every run of white space until version 0.5."""
    assert outcome("SELECT 'a b'", gt_sql="SELECT 'a  b'") == (0.0, "wrong_result")
    assert outcome("SELECT 'a\nb'", gt_sql="SELECT 'a' || char(10) || 'b'") == (1.0, "correct")


def test_empty_results_are_equal():
    """The reference also treats all empty results as equal, whatever their columns."""
    gold = "SELECT name FROM boats WHERE length > 90"

    assert outcome("SELECT 1 WHERE 0", gt_sql=gold) == (1.0, "correct")
    assert outcome("SELECT 1", gt_sql=gold) == (0.0, "wrong_result")


@pytest.mark.parametrize(
    ("query", "gold", "reward"),
    [
        pytest.param("SELECT NULL", "SELECT 0.0 * 9e999", 1.0, id="NaN is NULL"),
        pytest.param("SELECT 1e999", "SELECT 9e999", 1.0, id="infinity"),
        pytest.param("SELECT -9e999", "SELECT 9e999", 0.0, id="minus infinity"),
        pytest.param(
            "SELECT CAST(x'ff' AS TEXT)", "SELECT CAST(x'ff' AS TEXT)", 1.0, id="no UTF-8"
        ),
        pytest.param("SELECT CAST(x'fe' AS TEXT)", "SELECT CAST(x'ff' AS TEXT)", 0.0, id="other"),
        pytest.param("SELECT x'6162'", "SELECT 'ab'", 0.0, id="blob and text"),
        pytest.param("SELECT 'é'", "SELECT char(233)", 1.0, id="beyond ASCII"),
        pytest.param("SELECT ''", "SELECT NULL", 0.0, id="empty text and NULL"),
    ],
)
def test_cells_are_equal_as_their_values_are(query, gold, reward):
    assert outcome(query, gt_sql=gold)[0] == reward


@given(st.lists(st.integers(-3, 3), min_size=1), st.lists(st.integers(-3, 3), min_size=1))
def test_order_and_number_of_rows_never_count(numbers, others):
    def values(found):
        return block(f"VALUES {', '.join(f'({number})' for number in found)}")

    rollout = score_of(values(numbers), gt_sql=values(others).strip("`").removeprefix("sql"))

    assert rollout.reward == float({*numbers} == {*others})
    assert rollout.details["num_rows"] == len({*numbers})
    assert rollout.details["num_expected_rows"] == len({*others})


# What a query may do


@pytest.mark.parametrize(
    "query",
    [
        pytest.param("SELEC name FROM boats", id="syntax"),
        pytest.param("SELECT nothing FROM boats", id="no such column"),
        pytest.param("SELECT nothing()", id="no such function"),
        pytest.param("SELECT name FROM boats WHERE name REGEXP 'A'", id="no regular expressions"),
        pytest.param(f"{GOLD}; {GOLD}", id="two statements"),
        pytest.param("SELECT ?", id="parameter"),
        pytest.param("SELECT 'a\0b'", id="null character"),
        pytest.param("-- nothing", id="comment alone"),
        pytest.param(f"SELECT {'(' * 5000}1{')' * 5000}", id="nested too deeply"),
        pytest.param("SELECT abs(-9223372036854775808)", id="overflow"),
        pytest.param("SELECT date(CAST(x'ff' AS TEXT))", id="time that is no text"),
    ],
)
def test_query_that_fails_is_wrong(query):
    rollout = score_of(block(query))

    assert (rollout.reward, rollout.details["reason"]) == (0.0, "sql_error")
    assert 0 < len(rollout.details["error_message"]) <= 500


def test_score_shows_no_more_than_500_characters():
    rollout = score_of(block(f"SELECT {'a' * 1000}"))

    assert rollout.details["error_message"] == f"no such column: {'a' * 484}"
    assert rollout.answer == f"SELECT {'a' * 493}"


def test_score_names_the_version_of_sqlite():
    """The result of a query may depend on the version."""
    assert score_of("").details["sqlite_version"] == sqlite3.sqlite_version


def test_query_may_only_read(subtests):
    cases = [
        "DELETE FROM boats",
        "DROP TABLE boats",
        "CREATE TABLE more (a)",
        "CREATE TEMP TABLE more AS SELECT 1",
        "UPDATE boats SET length = 1",
        "UPDATE sqlite_master SET sql = ''",
        "INSERT INTO boats DEFAULT VALUES RETURNING *",
        "PRAGMA table_info(boats)",
        "SELECT * FROM pragma_table_info('boats')",
        "ATTACH 'more.sqlite' AS more",
        "VACUUM INTO 'more.sqlite'",
        "BEGIN",
        "COMMIT",
        "ROLLBACK",
        "SAVEPOINT here",
        "ANALYZE",
        "CREATE VIRTUAL TABLE more USING fts5(a)",
    ]
    for query in cases:
        with subtests.test(query=query):
            reward, reason = outcome(query)

            assert (reward, reason) in {(0.0, "not_allowed"), (0.0, "sql_error")}
            assert reason == "not_allowed" or query.startswith(("VACUUM", "UPDATE sqlite_master"))


def test_functions_of_chance_and_of_the_process_are_not_allowed(subtests):
    """A build that lacks one of these functions reports an error of its own."""
    cases = [
        "changes()",
        "fts3_tokenizer('simple')",
        "fts3_tokenizer('simple', x'4141414141414141')",
        "load_extension('more')",
        "random()",
        "randomblob(4)",
        "sqlite_compileoption_get(1)",
        "sqlite_log(1, 'more')",
        "sqlite_source_id()",
        "SQLITE_VERSION()",
    ]
    for function in cases:
        with subtests.test(function=function):
            query = f"SELECT {function}"
            message = r"is not allowed|no such function|unsafe use"

            with pytest.raises(QueryError, match=message):
                result_of(query)
            with pytest.raises(QueryError, match=message):
                result_of("SELECT a FROM b", f"CREATE TABLE b AS {query} AS a")
            with pytest.raises(QueryError, match=message):
                result_of("SELECT a FROM b", f"CREATE VIEW b AS {query} AS a")


@pytest.mark.parametrize(
    "table", ["bytecode('SELECT 1')", "dbstat", "sqlite_dbpage", "SQLITE_STMT"]
)
def test_tables_of_the_process_are_not_allowed(table):
    """A build that lacks one of these tables reports an error of its own."""
    with pytest.raises(QueryError, match=r"is not allowed|no such table"):
        result_of(f"SELECT count(*) FROM {table}")


@pytest.fixture
def east(monkeypatch):
    """Set the time zone to UTC+9."""
    monkeypatch.setenv("TZ", "XST-9")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("east")
@pytest.mark.parametrize(
    ("expression", "result"),
    [
        ("CURRENT_DATE", "2025-06-15"),
        ("CURRENT_TIME", "12:30:45"),
        ("current_timestamp", NOW),
        ("date()", "2025-06-15"),
        ("date('now')", "2025-06-15"),
        ("date(x'6e6f77')", "2025-06-15"),
        ("date(x'6e6f7700')", "2025-06-15"),
        ("datetime('No' || 'W', '-1 day')", "2025-06-14 12:30:45"),
        ("datetime('now' || char(0) || 'x')", NOW),
        ("datetime('now', 'localtime')", NOW),
        ("datetime('subsec')", NOW),
        ("datetime('Subsecond' || char(0))", NOW),
        ("date(' now')", None),
        ("date('tomorrow')", None),
        ("julianday('now') - julianday('2025-06-15 12:30:45')", 0),
        ("strftime('%Y')", "2025"),
        ("strftime('%Y', 'now')", "2025"),
        ("strftime('%s', 'subsec')", "1749990645"),
        ("strftime('now', '2020-01-01')", "now"),
        ("strftime()", None),
        ("time()", "12:30:45"),
        ("time('12:00', 'localtime')", "12:00:00"),
        ("time('12:00', 'LocalTime' || char(0) || 'x')", "12:00:00"),
        ("datetime('2020-01-01 12:00', 'utc')", "2020-01-01 12:00:00"),
        ("datetime('2020-01-01 12:00', 'utc' || char(0))", "2020-01-01 12:00:00"),
        ("strftime('%H', '12:00', '+1 hour', 'localtime')", "13"),
        ("unixepoch()", 1749990645),
        ("unixepoch('now')", 1749990645),
        ("unixepoch('subsec')", 1749990645),
        pytest.param(
            "timediff('2025-06-16 12:30:45', 'now') || timediff('subsec', 'now')",
            "+0000-00-01 00:00:00.000+0000-00-00 00:00:00.000",
            marks=pytest.mark.skipif(
                sqlite3.sqlite_version_info < (3, 43), reason="this SQLite has no timediff"
            ),
        ),
    ],
)
def test_current_time_is_fixed_and_in_utc(expression, result):
    assert result_of(f"SELECT {expression}") == {(result,)}


@pytest.mark.parametrize(
    "expression",
    [
        "datetime('2024-01-01', 'subsec')",
        "date('2024-01-31', '+1 month', 'start of month', 'weekday 1')",
        "datetime(1700000000, 'unixepoch')",
        "date('2024-01-01', 'now')",
        "julianday(NULL)",
        "strftime('%j %W %s', 2460000.5)",
    ],
)
def test_all_other_times_are_those_of_sqlite(expression):
    with closing(sqlite3.connect(":memory:")) as plain:
        expected = plain.execute(f"SELECT {expression}").fetchall()

    assert result_of(f"SELECT {expression}") == {*expected}


def test_present_is_the_same_for_gold_query_and_context():
    """BIRD's gold queries compute ages this way; the reference uses the machine's clock."""
    gold = "SELECT strftime('%Y', CURRENT_TIMESTAMP) - strftime('%Y', built) FROM boats"
    query = "SELECT strftime('%Y', date('now', 'localtime')) - substr(built, 1, 4) FROM boats"
    context = "CREATE TABLE a (b, c DEFAULT CURRENT_DATE); INSERT INTO a (b) VALUES (1);"

    assert outcome(query, gt_sql=gold) == (1.0, "correct")
    assert outcome("SELECT c FROM a", gt_sql="SELECT date()", sql_context=context)[0] == 1.0


def test_query_may_read_and_reckon(subtests):
    cases = [
        ("SELECT strftime('%Y', built) FROM boats WHERE boat_id = 1", "2001"),
        ("SELECT date('2024-02-28', '+1 day')", "2024-02-29"),
        ("SELECT CAST(julianday('2024-03-01') - julianday('2024-02-01') AS INTEGER)", 29),
        ("SELECT time('12:00', '+90 minutes')", "13:30:00"),
        ("SELECT date(built) FROM boats WHERE boat_id = 4", None),
        ("SELECT date('no date')", None),
        ("SELECT value FROM json_each('[5]')", 5),
        ("SELECT atom FROM json_tree('[5]') WHERE atom > 4", 5),
        ("SELECT max(n) FROM (SELECT row_number() OVER (ORDER BY name) AS n FROM boats)", 4),
        ("SELECT CURRENT_DATE FROM boats WHERE name GLOB 'A*' AND name LIKE 'a%'", NOW[:10]),
        ("SELECT name FROM sqlite_master", "boats"),
    ]
    for query, result in cases:
        with subtests.test(query=query, result=result):
            assert result_of(query) == {(result,)}


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        pytest.param(f"{ENDLESS} SELECT count(*) FROM n", "too_slow", id="endless recursion"),
        pytest.param(
            f"SELECT count(*) FROM {', '.join(f'boats AS b{n}' for n in range(20))}",
            "too_slow",
            id="cross joins",
        ),
        pytest.param(f"{ENDLESS} SELECT i FROM n", "too_large", id="endless rows"),
        pytest.param(
            f"{ENDLESS} SELECT hex(zeroblob(100000)) AS a FROM n ORDER BY a",
            "too_large",
            id="memory",
        ),
        pytest.param("SELECT zeroblob(1000000000)", "too_large", id="blob"),
        pytest.param(
            "SELECT replace(hex(zeroblob(900)), '0', hex(zeroblob(900)))", "too_large", id="text"
        ),
        pytest.param(f"SELECT '{'a' * 200_000}'", "too_large", id="query"),
    ],
)
def test_query_that_runs_away_is_wrong(query, reason):
    first = score_of(block(query), options={"max_steps": 10_000_000})

    assert (first.reward, first.details["reason"]) == (0.0, reason)
    assert first.details["num_expected_rows"] == 2, "the worker did not continue"


def test_query_may_take_the_steps_that_a_large_table_needs():
    query = f"{ENDLESS} SELECT count(*) FROM (SELECT i FROM n LIMIT 2000000)"

    assert outcome(query, gt_sql="SELECT 2000000") == (1.0, "correct")
    few = {"max_steps": 10_000_000}
    assert outcome(query, gt_sql="SELECT 2000000", options=few) == (0.0, "too_slow")


@pytest.mark.parametrize(("function", "reason"), [("abs", "correct"), ("date", "too_slow")])
def test_calls_of_functions_of_time_count_as_many_steps(function, reason):
    query = f"{ENDLESS} SELECT count({function}(i)) FROM (SELECT i FROM n LIMIT 20000)"

    assert outcome(query, gt_sql="SELECT 20000", options={"max_steps": 1_000_000})[1] == reason


def test_query_may_not_take_the_memory_that_its_worker_has():
    """The worker may use 1024 MB, and this query needs only about 400."""
    with closing(sqlite3.connect(":memory:")) as plain:
        if ("DEFAULT_MEMSTATUS=0",) in plain.execute("PRAGMA compile_options").fetchall():
            pytest.skip("this SQLite does not measure its memory")
    query = f"{ENDLESS} SELECT count(DISTINCT i || hex(zeroblob(400000))) FROM (SELECT i FROM n"

    assert outcome(f"{query} LIMIT 100)", gt_sql="SELECT 100") == (1.0, "correct")
    assert outcome(f"{query} LIMIT 500)", gt_sql="SELECT 500") == (0.0, "too_large")


def test_query_whose_plan_explodes_is_wrong():
    """Newer versions of SQLite also count the steps of planning."""
    doubled = ", ".join(f"c{n} AS (SELECT a.* FROM c{n - 1} a, c{n - 1})" for n in range(1, 40))
    reward, reason = outcome(f"WITH c0 AS (SELECT 1), {doubled} SELECT * FROM c39")

    assert reward == 0.0
    assert reason in {"too_large", "too_slow"}


def test_query_with_a_pattern_that_explodes_comes_to_an_end():
    text, pattern = "a" * 30_000, "%a" * 40 + "b"

    assert outcome(f"SELECT '{text}' LIKE '{pattern}'")[0] == 0.0
    assert outcome(f"SELECT '{text}' GLOB '{pattern.replace('%', '*')}'")[0] == 0.0


def test_query_that_takes_too_long_for_its_steps_is_wrong():
    """Each step scans a long text, so the worker is killed; the row is not at fault."""
    query = f"{ENDLESS} SELECT max(hex(zeroblob(400000 + i % 2)) LIKE '%0%0%0%0%1%') FROM n"

    assert outcome(query, options={"max_seconds": 1}) == (0.0, "too_slow")


def test_query_that_cannot_be_encoded_fails():
    with pytest.raises(QueryError, match="surrogates"):
        result_of("SELECT '\ud800'")


# Errors of the row


@pytest.mark.parametrize("text", ["", block(GOLD)])
@pytest.mark.parametrize(
    "gold", ["SELECT nothing FROM boats", "DELETE FROM boats", "SELECT random()"]
)
def test_gold_query_that_fails_leaves_the_rollout_unscored(gold, text):
    with pytest.raises(VerifierError, match=r'^"gt_sql" fails'):
        score_of(text, gt_sql=gold)


@pytest.mark.parametrize("text", ["", block(GOLD)])
@pytest.mark.parametrize(
    ("statement", "message"),
    [
        pytest.param("CREATE TABLE more (", "incomplete input", id="syntax"),
        pytest.param("INSERT INTO boats (boat_id) VALUES (1)", "UNIQUE", id="constraint"),
        pytest.param("INSERT INTO boats (name) SELECT random()", "not allowed", id="chance"),
        pytest.param("ATTACH '{file}' AS more; CREATE TABLE more.a (b)", "attached", id="attach"),
        pytest.param("VACUUM INTO '{file}'", "attached", id="vacuum"),
    ],
)
def test_context_that_fails_leaves_the_rollout_unscored(statement, message, text, tmp_path):
    """Without the added statement, the answer is scored."""
    file = tmp_path / "more.sqlite"
    assert outcome(GOLD) == (1.0, "correct")

    with pytest.raises(VerifierError, match=f'^"sql_context" fails: .*{message}'):
        score_of(text, sql_context=CONTEXT + statement.format(file=file))
    assert not file.exists()


def test_context_may_change_its_tables():
    """ALTER TABLE calls internal functions that a query may not call."""
    context = f"""{CONTEXT}
    ALTER TABLE boats RENAME TO ships; ALTER TABLE ships RENAME COLUMN name TO called;
    ALTER TABLE ships DROP COLUMN built; ALTER TABLE ships ADD COLUMN crew NOT NULL DEFAULT 3;
    CREATE INDEX by_length ON ships (length); ANALYZE;
    """
    assert result_of("SELECT * FROM ships WHERE boat_id = 1", context) == {(1, "Auk", 7.0, 3)}
    with pytest.raises(QueryError):
        result_of("SELECT sqlite_rename_test('main', '', 'boats', 0, 0, 0)")


def test_context_may_ask_for_the_row_that_it_added_last():
    context = """CREATE TABLE a (id INTEGER PRIMARY KEY, b); INSERT INTO a (b) VALUES ('x');
    CREATE TABLE c (a_id); INSERT INTO c VALUES (last_insert_rowid());"""

    assert result_of("SELECT a_id FROM c", context) == {(1,)}
    with pytest.raises(QueryError, match="not allowed"):
        result_of("SELECT last_insert_rowid()", context)


def test_gold_query_that_runs_away_leaves_the_rollout_unscored():
    gold, options = f"{ENDLESS} SELECT max(i) FROM n", {"max_steps": 1_000_000}

    with pytest.raises(VerifierError, match=r'^"gt_sql" fails \(too_slow\)'):
        score_of(block(GOLD), gt_sql=gold, options=options)


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"gt_sql": GOLD}, id="no context"),
        pytest.param({"sql_context": CONTEXT}, id="no gold"),
        pytest.param({"sql_context": CONTEXT, "gt_sql": " ;"}, id="gold without a letter"),
    ],
)
def test_parse_task_refuses_a_row_that_cannot_be_scored(fields):
    with pytest.raises(ValidationError):
        QueryTask.model_validate(fields)


def test_verify_scores_a_row_in_the_shape_of_the_reference(tmp_path):
    question = "Which boats are shorter than nine metres? Give name and length."
    row = row_of_file(
        tmp_path,
        NAME,
        {
            "responses_create_params": {"input": [{"role": "user", "content": question}]},
            "question": question,
            "gt_sql": GOLD,
            "sql_context": CONTEXT,
            "difficulty": "simple",
            "db_id": "harbour",
            "id": 0,
        },
    )

    assert row.id == "0"
    assert scored(played(row)).reward == 1.0
    assert scored(played(row, says(block("SELECT name FROM boats")))).reward == 0.0


# Tasks


def test_tasks_have_results_that_another_query_has_not_by_chance():
    rows = list(BirdSQL.generate(Random(2), 48))
    results = [result_of(row["gt_sql"], row["sql_context"]) for row in rows]

    assert all(1 <= len(result) <= 20 for result in results)
    assert not any(result in ({(0,)}, {(1,)}) for result in results)
    assert not any(None in cells for result in results for cells in result)
    assert len({frozenset(result) for result in results}) == len(rows)


def test_tasks_ask_every_question_of_every_schema():
    """A question is recognised by the beginning of its gold query."""
    rows = list(BirdSQL.generate(Random(1), 240))
    gold = [row["gt_sql"] for row in rows]
    beginnings = [
        one.query.split("{")[0] for schema in generator.SCHEMAS for one in schema.questions
    ]

    assert len({*beginnings}) == 48
    assert all(any(query.startswith(start) for query in gold) for start in beginnings)
    assert {(row["db_id"], row["difficulty"]) for row in rows} == {
        (schema.name, question.difficulty)
        for schema in generator.SCHEMAS
        for question in schema.questions
    }
    assert len({row["prompt"] for row in rows}) == 240
    assert [row["id"] for row in rows] == [f"bird-sql-{number}" for number in range(240)]


def test_tasks_show_the_tables_and_not_the_answer():
    for row in BirdSQL.generate(Random(4), 24):
        definitions = row["sql_context"].split("\nINSERT")[0]

        assert definitions in row["prompt"]
        assert row["question"] in row["prompt"]
        assert row["gt_sql"] not in row["prompt"]
        assert "INSERT" not in row["prompt"]
