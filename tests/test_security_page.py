"""docs/security.md, sentence by sentence: what it claims has a test, and what has none is advice or the name of a thing."""

import re
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from tests.test_docs import TESTS

PAGE = Path(__file__).parents[1] / "docs" / "security.md"
SAID = ""
"""Instead of a test: a definition, or advice. Nothing that could be untrue of the code."""


def sentences(page: Path = PAGE) -> list[str]:
    """The sentences of the page; a row of a table is one."""
    found: list[str] = []
    row: list[str] | None = None
    heading = False
    for token in MarkdownIt("commonmark").enable("table").parse(page.read_text()):
        if token.type == "tr_open":
            row = []
        elif token.type == "tr_close" and row is not None:
            found.append(" | ".join(row))
            row = None
        elif token.type in ("heading_open", "heading_close"):
            heading = token.type.endswith("open")
        elif token.type == "inline" and row is not None:
            row.append(token.content)
        elif token.type == "inline" and not heading:
            text = token.content.replace("\n", " ").replace("**", "")
            found += re.split(r"(?<=\.) ", text)
    headers = {"file | what it names | when it is imported", "what listens | with a private network | without one"}
    return [each for each in found if each not in headers | {"what listens | where"}]


CLAIMS = {
    "You, this package and the frameworks.": SAID,
    "Every process runs as you, with your rights.": "test_it_has_nothing_but_a_loopback_and_grants_nothing",
    "The processes of a run trust each other.": SAID,
    "They are started with the same request": "test_every_row_whose_peers_run_code_says_so",
    "torch's RPC strategies (": "test_every_row_whose_peers_run_code_says_so",
    "A TensorFlow server runs any graph": "test_every_row_whose_peers_run_code_says_so",
    "Files are not trusted.": SAID,
    "Those of runs and comparisons, `--data`": "test_odd_inputs_are_answered",
    "Nothing in them is unpickled or evaluated": "test_a_header_is_held_against_the_file",
    "A folder of `torch.distributed.checkpoint`": "test_both_hold_the_same_state",
    "That is read as symbols: each name": "test_nothing_is_called",
    "Three kinds of files may *name* code": "test_what_reads_a_run_imports_nothing_that_it_names",
    "Only plain files are read, of bounded size and depth": "test_nothing_else_opens_a_file_for_reading",
    "What an array's header claims": "test_a_header_is_held_against_the_file",
    "An archive that inflates to more than 64 MiB": "test_what_inflates_beyond_the_limit_is_refused",
    "Control characters from files are spelled out": "test_what_is_printed_obeys_nothing",
    "`samestep record` runs your command as you": "test_a_sitecustomize_that_is_shadowed_runs",
    "A record stays in its directory; nothing is sent anywhere.": "test_a_record_holds_nothing_of_the_data",
    "Of your data it holds hashes of examples alone": "test_a_record_holds_nothing_of_the_data",
    "It also holds the command": "test_a_record_holds_nothing_of_the_data",
    "A hash of an example can confirm a guess": SAID,
    "Where a model is called on several arguments": "test_each_argument_is_hashed_as_the_statement_says",
    "While `samestep diff` runs a command again, copies": "test_what_a_rerun_changes_is_put_back",
    "Copies that come with the record of somebody else": "test_the_list_of_a_copied_record_is_not_believed",
    "What a command that `samestep diff` runs leaves running": "test_what_a_rerun_started_ends_with_it",
    "A service that your script starts if there is none": SAID,
    "What samestep writes and removes is its own.": SAID,
    "Every run, comparison and entry of the cache has a list": "test_it_frees_what_is_named_and_nothing_else",
    "Files are made under names that are free": "test_what_is_planted_is_neither_followed_nor_changed",
    "If somebody who may write a run's directory puts a link": "test_what_is_planted_is_neither_followed_nor_changed",
    "A file that is written in place (": "test_what_is_planted_is_neither_followed_nor_changed",
    "`--out` takes a new or an empty directory only.": "test_an_out_that_holds_anything_is_refused",
    "`samestep clean` removes what is in such a list": "test_what_somebody_made_of_our_file_is_theirs",
    "Of what samestep was about to make": "test_of_what_was_about_to_be_made_no_more_is_ours_than_what_is_empty",
    "Everything else in the directory stays": "test_what_is_not_ours_stays_as_it_is",
    "A list that another user wrote is not believed.": "test_a_list_that_somebody_else_wrote_is_none",
    "In a copy of a directory nothing counts as ours": "test_a_copy_of_a_directory_is_not_ours",
    "A prepared run that waits to be started": "test_a_prepared_run_waits_until_it_is_named",
    "The folder `samestep-*` for a command's temporary files": "test_what_may_be_in_use_or_somebody_elses_stays",
    "If that was killed, the next command": "test_the_next_command_sweeps_what_a_killed_one_left",
    "Folders from before a restart of the machine": "test_what_may_be_in_use_or_somebody_elses_stays",
    "What a run starts ends with it": "test_what_a_builder_starts_is_ended_with_the_run",
    "A small process above each fork server": "test_what_a_worker_started_ends_with_whoever_is_killed",
    "It touches nothing else.": "test_a_command_ends_what_it_started_and_nothing_else",
    "A process that has become another user": "test_what_cannot_be_ended_is_told",
    "So may what runs while the keeper": SAID,
    "Other users of the machine and the network are not trusted where": "test_nobody_outside_reaches_a_run",
    "Elsewhere they are trusted": "test_without_a_private_network_torch_listens_on_the_loopback",
    "`model/model.json` in a run directory |": "test_a_worker_says_which_code_it_runs",
    "`compare.toml` | `model` and `data`": "test_a_comparison_keeps_the_digests_of_its_code",
    "`rank-0.steps` in a record | a command": "test_a_command_that_a_record_names_is_said_before_it_runs",
    "Each of these commands prints a line": "test_a_worker_says_which_code_it_runs",
    "Before its first rerun, `samestep diff` prints": "test_a_command_that_a_record_names_is_said_before_it_runs",
    "A record holds no digest of its script": SAID,
    "Compare a record that somebody sent you": "test_a_report_of_records_runs_nothing",
    "The digest of a model's Python file is kept beside its name": "test_a_comparison_keeps_the_digests_of_its_code",
    "A Python file that has changed since then is refused.": "test_a_worker_refuses_code_that_is_not_what_was_prepared",
    "A `compare.toml` that was written by hand has no digests.": "test_code_that_nobody_recorded_is_only_said",
    "Then the line is all you get.": "test_code_that_nobody_recorded_is_only_said",
    "The digest is of the file that is named": SAID,
    "Whoever can write the directory can also write its digests": SAID,
    "`samestep report`, `samestep export`, `samestep clean`": "test_what_reads_a_run_imports_nothing_that_it_names",
    "Your own model runs as you.": SAID,
    "Before a run, a process that is in no private network": "test_a_description_is_made_in_no_private_network",
    "In a run, the file is imported by the processes of the run": "test_other_models_and_losses",
    "`samestep run` and `samestep compare` put the processes": "test_it_has_nothing_but_a_loopback_and_grants_nothing",
    "Each run has its own.": "test_nobody_outside_reaches_a_run",
    "Only processes of the same run can connect there": "test_peers_connect_and_nobody_else_does",
    "Other users, other runs and other machines cannot.": "test_nobody_outside_reaches_a_run",
    "For root, a network namespace is enough.": "test_peers_connect_and_nobody_else_does",
    "For any other user it lies inside a user namespace": "test_it_has_nothing_but_a_loopback_and_grants_nothing",
    "A run of one process opens no port": "test_a_run_of_one_process_needs_no_environment",
    "It keeps the machine's network, through which `--tpu`": SAID,
    "Some kernels and most containers forbid namespaces.": SAID,
    "This is what listens in both cases:": SAID,
    "torch's store, where ranks meet |": "test_without_a_private_network_torch_listens_on_the_loopback",
    "gloo and NCCL, which carry tensors |": "test_without_a_private_network_torch_listens_on_the_loopback",
    "TensorPipe, which carries RPC calls |": "test_without_a_private_network_torch_listens_on_the_loopback",
    "gRPC servers of `tf:multi_worker_mirrored`": "test_without_a_private_network_open_ports_are_named",
    "the endpoint where a serving process is asked": "test_it_answers_its_own_user_only",
    "launcher, keeper and fork server | pipes": "test_nobody_outside_reaches_a_run",
    "The line gives the reason": "test_where_it_is_forbidden_the_fork_server_says_why",
    'The kernel answers "no space left on device"': "test_the_kernels_words_for_too_many_namespaces_are_translated",
    "To allow namespaces, set the sysctl": SAID,
    "A container needs `--cap-add SYS_ADMIN`": SAID,
    "Otherwise run the strategies in the row of gRPC servers": SAID,
    "A run that `--prepare` wrote": "test_a_prepared_run_is_started_by_hand",
    "Use a network that only trusted machines": SAID,
    "torch's store | `MASTER_PORT` on rank 0's machine": "test_without_a_private_network_torch_listens_on_the_loopback",
    "gloo, NCCL, TensorPipe | ports that the system chooses": "test_without_a_private_network_torch_listens_on_the_loopback",
    "TensorFlow's gRPC servers | the ports in `TF_CONFIG`": "test_without_a_private_network_open_ports_are_named",
    "the endpoint of a serving process | a Unix socket": "test_its_name_cannot_be_taken_first",
    "With `http_proxy` set, gRPC connects": "test_a_proxy_is_not_asked",
    "The launcher adds 127.0.0.1 to `no_proxy`": "test_other_hosts_keep_what_was_said_of_them",
    "Processes that are all on one host meet": "test_what_a_strategy_reads_is_filled_in",
    "Otherwise the ports above are open on the address": "test_hosts_are_told_apart_and_clusters_get_every_address",
    "The files in which processes meet": SAID,
    "An engine has ports of its own": SAID,
    "`--on` hands a script to the engine's command as you": SAID,
    "A new run directory, the cache and": "test_a_new_run_and_the_cache_are_their_users_alone",
    "A directory that exists keeps its mode.": "test_a_new_run_and_the_cache_are_their_users_alone",
    "To share a run, make the directory first": SAID,
    "States are derived from the data": SAID,
}
"""How a sentence begins -> the test that fails where it is untrue."""


def untested(page: Path) -> list[str]:
    """The sentences of a page that stand in no row of the table."""
    return [each for each in sentences(page) if not any(each.startswith(begins) for begins in CLAIMS)]


def test_every_sentence_has_its_test() -> None:
    assert untested(PAGE) == [], "say here which test holds it"


@pytest.mark.parametrize("begins", CLAIMS)
def test_what_is_said_of_a_sentence_is_there(begins: str) -> None:
    assert any(each.startswith(begins) for each in sentences()), "the page does not say so any more"
    assert CLAIMS[begins] == SAID or CLAIMS[begins] in TESTS


def test_most_of_the_page_can_be_untrue() -> None:
    assert sum(test != SAID for test in CLAIMS.values()) > 2 / 3 * len(CLAIMS)


def test_a_new_sentence_is_found(tmp_path: Path) -> None:
    added = "\nNothing is ever wrong. Another claim.\n\n| a | b |\n| --- | --- |\n| c | d |\n"
    (tmp_path / "page.md").write_text(PAGE.read_text() + added)
    assert untested(tmp_path / "page.md") == ["Nothing is ever wrong.", "Another claim.", "a | b", "c | d"]
