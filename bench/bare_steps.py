"""Steps of a module that imports nothing: what their processes take is the sandbox's own."""


def no_op(ctx, given):  # type: ignore[no-untyped-def] # noqa: ANN001, ANN201, ARG001
    """Return what is given."""
    return given


def weigh(ctx, given):  # type: ignore[no-untyped-def] # noqa: ANN001, ANN201, ARG001
    """Return the KiB of memory that this process has to itself, and its share of the rest."""
    with open("/proc/self/smaps_rollup") as lines:  # noqa: PTH123 - it imports nothing
        return next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))


def spin(ctx, given):  # type: ignore[no-untyped-def] # noqa: ANN001, ANN201
    """Note in a file which process this is and how many seconds are left, and never end."""
    import os  # noqa: PLC0415 - the module imports nothing

    with open(given["note"], "w") as note:  # noqa: PTH123 - it imports nothing
        note.write(f"{os.getpid()} {ctx.time_left().total_seconds()}\n")
    while True:
        try:
            while True:
                pass
        except BaseException:  # noqa: BLE001, S110 - it hears no one
            pass
