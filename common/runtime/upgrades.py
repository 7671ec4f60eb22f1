"""What turns the values of a result of an older schema version into those of the next one."""

from collections.abc import Callable, Mapping

from samestep.common.catalog import strategy_info


def _from_version_1(values: dict[str, dict[str, dict[str, object]]]) -> None:
    """Version 1 guessed the backend from the names of devices, and had the emulation in the note on devices only."""
    info = strategy_info(str(values["framework"]), str(values["strategy"]))
    on_gpus = any("cuda" in str(row["device"]) for row in values["processes"])
    is_emulated = info.emulation and str(values["device_note"]).startswith(info.emulation)
    new: dict[str, object] = {
        "schema_version": 2,
        "backend": "nccl" if on_gpus and info.backend == "gloo" else info.backend,
        "emulation": info.emulation if is_emulated else "",
    }
    values.update(new)  # pyrefly: ignore
    techniques = values["config"]["techniques"]
    techniques["accumulation_steps"] = techniques.pop("micro_batches")
    for footprint in values["predicted"]["footprints"]:
        footprint["source"] = "predicted"  # pyrefly: ignore


def _from_version_2(values: dict[str, dict[str, object]]) -> None:
    """Version 2 had order statistics of the windows where the slowest and the fastest window are now."""
    new: dict[str, object] = {"schema_version": 3}
    if (rate := values["examples_per_second"]) is not None:
        kept = {"median": rate["median"], "windows": rate["windows"]}
        new["examples_per_second"] = kept | {"slowest_window": None, "fastest_window": None}
    values.update(new)  # pyrefly: ignore


def _from_version_3(values: dict[str, dict[str, list[dict[str, object]]]]) -> None:
    """Version 3 had the totals of what is exchanged in a step, where each send is now."""
    predicted = values["predicted"]
    predicted["sends"] = [
        {
            "phase": "",
            "operation": total["name"],
            "group": "all",
            "ranks": 0,
            "bytes": total["bytes_per_step"],
            "count": total["count_per_step"],
        }
        for total in predicted.pop("exchanges")
    ]
    values.update({"schema_version": 4})  # pyrefly: ignore


UPGRADES: Mapping[int, Callable[..., None]] = {1: _from_version_1, 2: _from_version_2, 3: _from_version_3}
"""Schema version -> what turns its values into those of the next one."""
