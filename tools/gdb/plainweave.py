"""Fibers of Plainweave in gdb, in a running process and in a core file (x86-64 Linux).

    (gdb) source tools/gdb/plainweave.py
    (gdb) info fibers              all fibers that have started: number, name, what they do, where they wait
    (gdb) fiber 17 bt              the stack of fiber 17
    (gdb) fiber apply all bt       the stacks of all fibers
    (gdb) help fiber

A fiber that runs is on the stack of a thread: `fiber N bt` then shows that thread's. Fibers are found by the table
PLAINWEAVE_FIBERS in the program, which needs symbols (an executable that is not stripped) and no debug information; the
functions' names and lines need what any back trace needs.
"""

import struct

import gdb
import gdb.unwinder

MAGIC, VERSION = b"plainwv\0", 2
# The fields of `FiberLayout` in crates/plainweave/src/fiber/layout.rs.
LAYOUT = struct.Struct("<8sIIQQ8I11I")
FIELDS = (
    "magic version saved_words entries used entry_size start slots size meta meta_size owner guard "
    "name name_len id state phase movement waits last_worker pinned_to pointer stack"
).split()
# crates/plainweave/src/atomics/state.rs, pinned_state.rs; fiber/mod.rs, fiber/note.rs.
SUSPENDED, FINISHED = 2, 4
PHASE_SUSPENDED, PHASE_FINISHED = 2, 3
ANYTIME = 2
REASONS = ["unpark", "the clock", "I/O", "a fiber", "a scope", "a blocking job", "a lock or channel", "a future"]
REASON_BITS = 0x07
NOWHERE = 0xFFFFFFFF
# What crates/plainweave/src/context/x86_64.rs saves at the stack pointer of a fiber that does not run: the address to
# go on at, RBX, RBP.
SAVED = struct.Struct("<QQQ")
START = "plainweave::context::x86_64::start"
MOST_FRAMES = 200


def memory(address, length):
    return bytes(gdb.selected_inferior().read_memory(address, length))


def number(address, size):
    return int.from_bytes(memory(address, size), "little")


def layout():
    """The program's table as a dictionary."""
    language = gdb.parameter("language")
    gdb.execute("set language c", to_string=True)
    try:
        at = int(gdb.parse_and_eval("(unsigned long) &PLAINWEAVE_FIBERS"))
    except gdb.error:
        raise gdb.GdbError("no PLAINWEAVE_FIBERS: the program is stripped, or does not use Plainweave")
    finally:
        gdb.execute("set language %s" % language, to_string=True)
    table = dict(zip(FIELDS, LAYOUT.unpack(memory(at, LAYOUT.size))))
    if table["magic"] != MAGIC or table["version"] != VERSION:
        raise gdb.GdbError("the program has another version of Plainweave than this script")
    return table


class Fiber:
    """A fiber that has started, by its header's address and its stack's slot."""

    def __init__(self, table, header, slot):
        self.slot = slot
        head = lambda field, size: number(header + table[field], size)
        self.id = head("id", 8)
        length = min(head("name_len", 8), 128)
        self.name = memory(head("name", 8), length).decode("utf-8", "replace") if length else None
        movable = head("movement", 1) == ANYTIME
        state, phase = head("state", 4), head("phase", 1)
        self.ended = state & FINISHED != 0 or phase == PHASE_FINISHED
        self.suspended = state & SUSPENDED != 0 if movable else phase == PHASE_SUSPENDED
        reason = head("waits", 1) & REASON_BITS
        self.reason = REASONS[reason] if reason < len(REASONS) else "?"
        worker = head("pinned_to", 4)
        self.worker = worker if worker != NOWHERE else head("last_worker", 4)
        # If the stack is free, the header is that of a fiber that has ended, or by now of one with another stack.
        words = struct.unpack("<2Q", memory(header + table["stack"], 16))
        self.real = any(slot[0] < word <= slot[1] for word in words)
        # 0 while it runs; elsewhere on a stack that the fiber's code has brought along.
        pointer = head("pointer", 8)
        self.pointer = pointer if slot[0] < pointer < slot[1] else None

    def registers(self):
        """Instruction, stack and frame pointer and RBX of a fiber that does not run."""
        rip, rbx, rbp = SAVED.unpack(memory(self.pointer, SAVED.size))
        return {"rip": rip, "rsp": self.pointer + SAVED.size, "rbp": rbp, "rbx": rbx}


def fibers():
    """All fibers that have started and not ended, by number."""
    table = layout()
    found = {}
    for entry in range(number(table["used"], 8)):
        entry = table["entries"] + entry * table["entry_size"]
        start, slots, size, meta = (number(entry + table[field], 8) for field in ("start", "slots", "size", "meta"))
        if start == 0:
            continue
        owners = memory(meta, slots * table["meta_size"])
        for slot in range(slots):
            (header,) = struct.unpack_from("<Q", owners, slot * table["meta_size"] + table["owner"])
            if header == 0:
                continue
            low = start + slot * (table["guard"] + size) + table["guard"]
            try:
                fiber = Fiber(table, header, (low, low + size))
            except gdb.MemoryError:
                continue  # The stack is free, and the header of its last fiber gone.
            if fiber.real and not fiber.ended:
                found[fiber.id] = fiber
    return [found[id] for id in sorted(found)]


def running():
    """The threads by the stack pointers at which they stopped."""
    selected, found = gdb.selected_thread(), {}
    for thread in gdb.selected_inferior().threads():
        thread.switch()
        found[int(gdb.newest_frame().read_register("rsp"))] = thread
    if selected is not None:
        selected.switch()
    return found


def thread_of(fiber, threads):
    return next((thread for sp, thread in threads.items() if fiber.slot[0] <= sp < fiber.slot[1]), None)


class Saved(gdb.unwinder.Unwinder):
    """Makes a fiber's saved registers those of the caller of frame 0, whatever that is. (In a core file registers
    cannot be set.)"""

    def __init__(self):
        super().__init__("plainweave-fiber")
        self.registers = None

    def __call__(self, pending):
        if self.registers is None or pending.level() != 0:
            return None

        class Id:
            sp = gdb.Value(self.registers["rsp"] - SAVED.size)
            pc = pending.read_register("rip")

        info = pending.create_unwind_info(Id())
        pointer = pending.architecture().integer_type(64, False)
        for register, value in self.registers.items():
            info.add_saved_register(register, gdb.Value(value).cast(pointer))
        return info


SAVED_UNWINDER = Saved()
gdb.unwinder.register_unwinder(None, SAVED_UNWINDER, replace=True)


def described(frame):
    """A frame as `bt` has it, without arguments."""
    place = frame.find_sal()
    name = frame.name() or "??"
    if place.symtab is not None and place.line:
        return "0x%016x in %s at %s:%d" % (frame.pc(), name, place.symtab.filename, place.line)
    return "0x%016x in %s" % (frame.pc(), name)


def frames_from(frame):
    """Frames as text, to the beginning of the fiber's stack."""
    texts = []
    while frame is not None and len(texts) < MOST_FRAMES:
        if (frame.name() or "").startswith(START) or frame.type() == gdb.SIGTRAMP_FRAME:
            break
        texts.append(described(frame))
        try:
            frame = frame.older()
        except gdb.error as error:
            texts.append("(%s)" % error)
            break
    return texts


def back_trace(fiber, thread):
    if thread is not None:
        selected = gdb.selected_thread()
        thread.switch()
        try:
            return frames_from(gdb.newest_frame())
        finally:
            if selected is not None:
                selected.switch()
    if fiber.pointer is None:
        return ["(it is being switched to or from)"]
    SAVED_UNWINDER.registers = fiber.registers()
    gdb.invalidate_cached_frames()
    try:
        return frames_from(gdb.newest_frame().older())
    finally:
        SAVED_UNWINDER.registers = None
        gdb.invalidate_cached_frames()


def title(fiber, thread):
    name = ' "%s"' % fiber.name.encode("unicode_escape").decode() if fiber.name else ""
    if thread is not None:
        does = "runs on thread %d" % thread.num
    elif fiber.suspended:
        does = "waits for " + fiber.reason
    else:
        does = "ready"
    worker = "" if fiber.worker == NOWHERE else ", worker %d" % fiber.worker
    return "fiber #%d%s: %s%s" % (fiber.id, name, does, worker)


def place(frames):
    """The innermost frame that is not the runtime's, the standard library's or another package's."""
    foreign = ("/rustc/", "/rustlib/src/", "/registry/src/", "/git/checkouts/", "plainweave/src/")
    places = (frame.rpartition(" at ") for frame in frames)
    own = (head + at + file for head, at, file in places if at and not any(part in file for part in foreign))
    return next(own, frames[0] if frames else "??")


class InfoFibers(gdb.Command):
    """List the fibers of Plainweave that have started: number, name, what each does, and where.
`where` is the innermost function that is neither the runtime's nor the standard library's."""

    def __init__(self):
        super().__init__("info fibers", gdb.COMMAND_STATUS)

    def invoke(self, argument, from_tty):
        threads, count = running(), 0
        for fiber in fibers():
            thread = thread_of(fiber, threads)
            print("%s\n    %s" % (title(fiber, thread), place(back_trace(fiber, thread))))
            count += 1
        print("%d fibers" % count)


class FiberCommand(gdb.Command):
    """Show the stacks of Plainweave's fibers.
fiber N bt            the stack of fiber N, as `info fibers` numbers them
fiber apply all bt    the stacks of all fibers"""

    def __init__(self):
        super().__init__("fiber", gdb.COMMAND_STACK)

    def invoke(self, argument, from_tty):
        words = gdb.string_to_argv(argument)
        if len(words) == 2 and words[0].isdigit() and words[1] in ("bt", "backtrace"):
            wanted = [fiber for fiber in fibers() if fiber.id == int(words[0])]
            if not wanted:
                raise gdb.GdbError("there is no fiber %s that has started: see `info fibers`" % words[0])
        elif words[:2] == ["apply", "all"] and words[2:] in (["bt"], ["backtrace"]):
            wanted = fibers()
        else:
            raise gdb.GdbError("usage: fiber N bt, or fiber apply all bt")
        threads = running()
        for fiber in wanted:
            thread = thread_of(fiber, threads)
            print(title(fiber, thread))
            for level, frame in enumerate(back_trace(fiber, thread)):
                print("#%-3d %s" % (level, frame))
            print()


InfoFibers()
FiberCommand()
