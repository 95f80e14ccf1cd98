"""Two to six sentences about a fragment, which are facts only; they are also what the knowledge is searched with."""

from __future__ import annotations

from .finding import Fragment

_GIB = float(1 << 30)


def described(f: Fragment) -> list[str]:
    """The sentences about one fragment."""
    make = {
        "JOB.context": _context, "POSIX.sizes": _sizes, "POSIX.alignment": _alignment, "POSIX.order": _order, "POSIX.repeats": _repeats,
        "POSIX.sharing": _sharing, "POSIX.ranks": _ranks, "POSIX.metadata": _metadata, "MPI-IO.calls": _calls, "MPI-IO.ranks": _mpi_ranks,
        "STDIO.streams": _streams, "LUSTRE.servers": _servers,
    }.get(f.key)  # fmt: skip
    return make(f) if make else [f"{f.module} has {f.number('records'):,.0f} records.", f"Its counters are {_plain(f)}."]


def _plain(f: Fragment) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in list(f.fields.items())[:6]) or "empty"


def _context(f: Fragment) -> list[str]:
    n = f.number
    return [
        f"The job runs on {n('processes'):,.0f} processes for {n('run_time_s'):,.1f} s and moves {n('bytes') / _GIB:,.2f} GiB.",
        f"Its processes spend {n('io_time_s'):,.1f} s in I/O altogether, which is {n('io_share_of_run'):.1%} of their time.",
        f"The log has the modules {f.fields['modules']}; files lie on {f.fields['file_systems'] or 'unknown file systems'}.",
        *([f"The modules {f.fields['partial']} are incomplete."] if f.fields["partial"] else []),
    ]


def _sizes(f: Fragment) -> list[str]:
    n = f.number
    said = []
    for way in ("read", "write"):
        if n(f"{way}s"):
            said.append(
                f"{n(f'{way}s'):,.0f} {way}s move {n(f'{way}_mean_bytes') / 1024:,.1f} KiB on average; {n(f'{way}_small_share'):.0%} of "
                f"them are small requests of at most 1 MiB, in {n(f'{way}_time_in_small_s'):,.1f} of {n(f'{way}_time_s'):,.1f} s."
            )
        else:
            said.append(f"There is no {way}.")
    return said


def _alignment(f: Fragment) -> list[str]:
    n = f.number
    said = [
        (
            f"{n(f'{way}s_misaligned'):,.0f} {way}s ({n(f'{way}_misaligned_share'):.0%}) are "
            f"misaligned: they do not begin at a multiple of the file's alignment."
        )
        for way in ("read", "write")
    ]
    stripe = f" on stripes of {n('stripe_size') / 1024:,.0f} KiB" if n("stripe_size") else ""
    return [*said, f"The usual request is {n('common_request') / 1024:,.1f} KiB{stripe}; the alignment is {n('alignment'):,.0f} bytes."]


def _order(f: Fragment) -> list[str]:
    n = f.number
    return [
        (f"{n(f'{way}s_random'):,.0f} of {n(f'{way}s'):,.0f} {way}s ({n(f'{way}_random_share'):.0%}) "
f"are random, and {n(f'{way}_consecutive_share'):.0%} are consecutive.")
        for way in ("read", "write")
    ]  # fmt: skip


def _repeats(f: Fragment) -> list[str]:
    n = f.number
    return [
        f"{n('files_read'):,.0f} files are read, {n('bytes_read') / _GIB:,.2f} GiB in all.",
        (
            f"The same bytes are read repeatedly {n('repeated_times'):.1f} times; files read more "
            f"than twice hold {n('repeated_bytes_share'):.0%} of the bytes read."
        ),
    ]


def _sharing(f: Fragment) -> list[str]:
    n = f.number
    return [
        (
            f"{n('shared_files'):,.0f} of {n('files'):,.0f} files are shared by several "
            f"ranks and hold {n('bytes_shared_share'):.0%} of the bytes."
        ),
        (
            f"Without aggregation are {n('shared_files_not_aggregated'):,.0f} shared files "
            f"with {n('bytes_shared_not_aggregated_share'):.0%} of the bytes."
        ),
    ]


def _ranks(f: Fragment) -> list[str]:
    n = f.number
    said = []
    if n("shared_files"):
        said.append(
            f"On the shared file rank {n('shared_slowest_rank'):.0f} is slowest with {n('shared_slowest_s'):,.2f} "
            f"s; the fastest rank takes {n('shared_fastest_s'):,.2f} s."
        )
        said.append(f"The bytes of the fastest and the slowest rank differ by {n('shared_bytes_spread'):.0%}.")
    if n("own_ranks"):
        said.append(
            f"{n('own_ranks'):,.0f} ranks have files of their own; rank {n('own_busiest_rank'):.0f} moves most, "
            f"{n('own_bytes_most') / 2**20:,.0f} MiB, and the least is {n('own_bytes_least') / 2**20:,.0f} MiB."
        )
        said.append(
            f"Of these, rank {n('own_slowest_rank'):.0f} is slowest with {n('own_slowest_s'):,.2f} "
            f"s; the mean over all ranks is {n('own_mean_s'):,.2f} s."
        )
        said.append(
            f"A quarter of them take less than {n('own_s_quantile_25'):,.2f} s, and a quarter more than {n('own_s_quantile_75'):,.2f} s."
        )
    return said or ["No rank moves data through POSIX.", "The load of ranks is unknown."]


def _metadata(f: Fragment) -> list[str]:
    n = f.number
    return [
        (
            f"{n('calls'):,.0f} metadata calls (opens, stats, syncs) take {n('metadata_s'):,.1f} "
            f"s in all and {n('metadata_s_on_one_rank'):,.2f} s on one rank."
        ),
        (
            f"There are {n('calls_per_data_request'):,.2f} metadata calls per data request, "
            f"on {n('files'):,.0f} files, {n('files_per_rank'):,.2f} per rank."
        ),
    ]


def _calls(f: Fragment) -> list[str]:
    n = f.number
    return [
        (f"Of {n(f'{way}s'):,.0f} MPI-IO {way}s {n(f'{way}s_collective'):,.0f} are collective and "
f"{n(f'{way}s_independent'):,.0f} independent; they move {n(f'{way}_mean_bytes') / 1024:,.1f} KiB on average.")
        for way in ("read", "write")
    ]  # fmt: skip


def _mpi_ranks(f: Fragment) -> list[str]:
    n = f.number
    return [
        f"MPI-IO has {n('shared_files'):,.0f} files that all ranks open.",
        f"On the largest, a rank moves {n('bytes_of_a_rank') / 2**20:,.1f} MiB on average, and ranks differ by {n('bytes_spread'):.0%}.",
    ]


def _streams(f: Fragment) -> list[str]:
    n = f.number
    return [
        (f"Buffered streams (STDIO) {way} {n(f'{way}_bytes') / 2**20:,.1f} MiB, {n(f'{way}_share_of_bytes'):.0%} "
f"of what is {'read' if way == 'read' else 'written'}, in calls of {n(f'{way}_mean_bytes'):,.0f} bytes.")
        for way in ("read", "write")
    ]  # fmt: skip


def _servers(f: Fragment) -> list[str]:
    n = f.number
    said = [f"Files lie on {n('targets'):,.0f} storage targets; the fullest holds {n('bytes_most_over_mean'):.1f} times the mean."]
    if n("targets_compared") >= 2:
        said.append(
            f"Storage target {n('slowest_target'):.0f} is the slowest: {n('slowest_s_per_gib'):,.1f} "
            f"s per GiB, where {n('usual_s_per_gib'):,.1f} s are usual."
        )
    if n("hot_ranks"):
        said.append(
            f"The file on a single stripe that takes most time is used by {n('hot_ranks'):,.0f} "
            f"ranks and holds {n('hot_bytes_share'):.0%} of the bytes."
        )
    return said if len(said) > 1 else [*said, "No file on a single target is used by several ranks."]
