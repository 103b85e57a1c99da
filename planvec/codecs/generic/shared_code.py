"""Reads in the code of environments what they share with others in one process, and whether they use hashes.

A trial (`shared`) shows what environments change beside themselves in their first steps. Their code also
shows what happens rarely or late:

    global COUNT; COUNT += 1    CACHE[key] = value    LOG["x"].append(x)    type(self).best = x
    self.config.level += 1      shuffle(self.DECK)    np.random.rand()

It is read line by line, and what a name stands for is followed through attributes, elements and other names,
not through calls. What changes in ways that this misses is watched while the environments run (`Watch`).
Only the code of the program and of the packages that define the environments is read.
"""

from __future__ import annotations

import dis
import functools
import random
import sys
import types
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from planvec.codecs.generic.attributes import RESEEDABLE
from planvec.rows import is_installed

CONTAINERS = (list, dict, set, deque, bytearray, np.ndarray)
# methods that change containers in place
_MUTATORS = {
    *("add", "append", "appendleft", "clear", "difference_update", "discard", "extend", "extendleft", "fill"),
    *("insert", "intersection_update", "move_to_end", "pop", "popitem", "popleft", "put", "remove", "resize"),
    *("reverse", "rotate", "setdefault", "sort", "subtract", "symmetric_difference_update", "update"),
    *("add_edge", "add_edges_from", "add_node", "add_nodes_from", "remove_edge", "remove_node"),  # networkx
    *("add_", "clamp_", "copy_", "div_", "fill_", "mul_", "sub_", "zero_"),  # torch
}
# functions that change their arguments
_CHANGING = {
    *("at", "copyto", "fill_diagonal", "heapify", "heappop", "heappush", "heappushpop", "heapreplace"),
    *("insort", "insort_left", "insort_right", "place", "put", "put_along_axis", "putmask", "setitem"),
    "shuffle",
}
_VIEWS = ("T", "flat", "imag", "real")  # attributes of arrays in the memory of the array
_SETTING = ("STORE_ATTR", "DELETE_ATTR")
_CALLS = ("PRECALL", "CALL", "CALL_KW")
_TAKING_NOTHING = (
    *("LOAD_", "PUSH_", "COPY", "SWAP", "KW_NAMES", "JUMP", "EXTENDED_ARG"),
    *("RESUME", "MAKE_CELL"),
)
# beginnings of the names of instructions
_RETURNING_NOTHING = ("STORE_", "POP_", "DELETE_", "RETURN_", "LIST_", "SET_", "DICT_", "MAP_", "RAISE_")
# methods that run when a class is defined, once for all environments
_AT_DEFINITION = ("__init_subclass__", "__set_name__")
# methods whose first argument is the class without a decorator
_OF_CLASSES = ("__new__", "__class_getitem__")
# functions of numpy.random that use its global generator without being methods of it
_SEEDING = frozenset({"seed", "get_state", "set_state", "ranf", "sample"})
# functions of torch that use its global generator
_TORCH = {
    *("bernoulli", "manual_seed", "multinomial", "normal", "poisson", "rand", "rand_like", "randint"),
    *("randint_like", "randn", "randn_like", "randperm", "seed"),
}
# ends of texts about what has no influence on results
_HARMLESS = (
    ".metadata",  # of Gymnasium: about pictures
    "minigrid.core.grid.Grid.tile_cache",  # of pictures, by what they show
)


_HASHING = {"frozenset", "hash", "id", "set"}
# Packages whose results do not depend on hashes of texts. Built-in methods have no module.
_WITHOUT_HASHES = {
    *("PIL", "cv2", "gymnasium", "jax", "matplotlib", "numba", "numpy", "pandas", "planvec", "pygame"),
    *("scipy", "torch", "None", *sys.stdlib_module_names),
}


# functions that change their arguments, and which ones
_Changers = Mapping[types.FunctionType, Collection[str]]


class _Load(NamedTuple):
    """Holds what consecutive instructions load: `np`, then `random` of it, then `rand` of that."""

    path: str  # the names, with dots
    value: Any  # the object
    # the namespace of the last name; None if it has none: an element, or a variable of an outer function, for
    # example
    space: Mapping[str, Any] | None = None
    owner: type | None = None  # the class of the object, for the first argument of a method; None otherwise
    attribute: str = ""  # the attribute of that object through which it is read; "" otherwise
    next: dis.Instruction | None = None  # the instruction behind it


class CodeReader:
    """Reads functions and classes, and the functions and classes that they use."""

    def __init__(self, roots: Iterable[Any], packages: Iterable[str]) -> None:
        self._packages = {*packages}
        self._seen: dict[int, Any] = {}  # keeps the objects alive, with their ids
        # path -> namespace and name, of the variables of modules and classes that the code uses
        self.variables: dict[str, tuple[Mapping[str, Any], str]] = {}
        todo: deque[tuple[Any, type | None]] = deque((root, None) for root in roots)
        bodies: list[_Body] = []
        while todo:
            value, owner = todo.popleft()
            for function in functions_in(value):
                if self.is_own(function) and self._is_new(function):
                    found = _bodies_of(function, owner, isinstance(value, classmethod))
                    todo.extend((used, None) for body in found for used in self._used_by(body))
                    bodies += found
            if isinstance(value, type):
                # Before the functions that code finds in the class, which would be read without their object.
                members = [
                    (member, base)
                    for base in value.__mro__
                    if self.is_own(base) and self._is_new(base)
                    for name, member in vars(base).items()
                    if name not in _AT_DEFINITION
                ]
                todo.extendleft(reversed(members))
        # Whether the code makes sets or hashes, or uses packages that may do so. The order of sets of texts
        # differs between processes.
        self.uses_hashes = any(
            body.makes_sets() or any(map(self._may_hash, body.loads.values())) for body in bodies
        )
        stored = {body: {*body.stored_on_self()} for body in bodies}
        self._stored = {name for names in stored.values() for name in names}
        changers: dict[types.FunctionType, set[str]] = {}
        for body in bodies:
            changers.setdefault(body.function, set()).update(body.changed_arguments())
        self._changers = {function: names for function, names in changers.items() if names}
        # names of attributes whose content methods change in place
        self.changed_on_self = {name for body in bodies for name in body.changed_on_self(self._changers)}
        # classes whose methods set attributes later than `__init__`
        self.changing = {
            body.owner
            for body, names in stored.items()
            if (names or body.changes_itself()) and not body.name.endswith(".__init__")
        }
        uses = [f"{body.name} {text}" for body in bodies for text in self._uses(body)]
        # texts that say what the code changes, or draws from, that others in the process share
        self.uses = [use for use in uses if not use.endswith(_HARMLESS)]

    def is_own(self, value: Any) -> bool:
        """Return whether a class, function or module belongs to the program, or to a package that is read."""
        name = value.__name__ if isinstance(value, types.ModuleType) else getattr(value, "__module__", None)
        if not isinstance(name, str):
            return False
        package = name.partition(".")[0]
        if name == "__main__" or package in self._packages:
            return True
        path = getattr(sys.modules.get(name), "__file__", None)
        return package != "planvec" and isinstance(path, str) and not is_installed(path)

    def _is_new(self, value: Any) -> bool:
        is_new = id(value) not in self._seen
        self._seen[id(value)] = value
        return is_new

    def _used_by(self, body: _Body) -> Iterator[Any]:
        """Note the variables that a function uses, and yield its functions and classes."""
        for load in body.loads.values():
            if isinstance(load.value, type) or functions_in(load.value):
                yield load.value
            elif not isinstance(load.value, types.ModuleType):
                if load.space is not None and not global_generator(load.value, load.path):
                    self.variables.setdefault(
                        body.full_name(load), (load.space, load.path.rpartition(".")[2])
                    )
                yield type(load.value)

    def _may_hash(self, load: _Load) -> bool:
        value = load.value
        if isinstance(value, (set, frozenset)):
            return True
        if isinstance(value, type) and load.next is not None and _is_attribute(load.next):
            return False  # what is read of it counts
        if not isinstance(value, (type, types.FunctionType, types.BuiltinFunctionType)) or self.is_own(value):
            return False
        return str(value.__module__).partition(".")[0] not in _WITHOUT_HASHES

    def _uses(self, body: _Body) -> Iterator[str]:
        """Yield what a function changes, or draws from, that others in the process share."""
        for name in body.assigned():
            yield f"assigns {name}"
        for end, load in body.loads.items():
            generator = global_generator(load.value, load.path)
            if generator:
                verb = "seeds" if load.path.endswith("seed") else "uses"
                yield f"{verb} the global generator of {generator}"
            elif not self._is_shared(load):
                continue
            elif type(load.value) in self.changing:
                yield f"uses {body.full_name(load)}, whose methods change it"
            elif is_drawn(load.value):
                yield f"draws from {body.full_name(load)}"
            elif isinstance(load.value, CONTAINERS) and (
                _is_mutation(load.next) or body.is_changed_by_call(end, self._changers)
            ):
                yield f"changes {body.full_name(load)}"
        for load, attribute in body.targets():
            if self._is_shared(load):
                yield f"assigns {attribute} of {body.full_name(load)}"

    def _is_shared(self, load: _Load) -> bool:
        """Return whether an object belongs to a module or a class, and not to one environment alone."""
        return load.attribute not in self._stored


class _Body:
    """Reads the instructions of one code object."""

    def __init__(
        self,
        code: types.CodeType,
        function: types.FunctionType,
        owner: type | None,
        first: str,
        is_of_class: bool,
    ) -> None:
        self.name = f"{function.__module__}.{function.__qualname__}"
        self._code, self.function = code, function
        self.owner, self._first, self._is_of_class = owner, first, is_of_class
        self._steps = [step for step in dis.get_instructions(code) if step.opname != "NOP"]
        self._names: dict[str, _Load] = {}  # local names of what an import or an assignment has loaded
        self.loads = dict(self._find_loads())

    def full_name(self, load: _Load) -> str:
        """Return the name of a loaded object, for messages."""
        if isinstance(load.value, (type, types.ModuleType)):
            return _name_of(load.value)
        return load.path if "." in load.path else f"{self.function.__module__}.{load.path}"

    def makes_sets(self) -> bool:
        """Return whether the code makes sets, or asks for hashes or addresses."""
        is_named = bool(_HASHING & {*self._code.co_names})
        has_constant = any(isinstance(constant, frozenset) for constant in self._code.co_consts)
        return (
            is_named or has_constant or any(step.opname in ("BUILD_SET", "SET_ADD") for step in self._steps)
        )

    def stored_on_self(self) -> Iterator[str]:
        """Yield the names of the attributes that a method sets on its object."""
        for index, step in enumerate(self._steps):
            is_stored = step.opname == "STORE_ATTR" and self._first and not self._is_of_class
            if is_stored and _local(self._steps[self._end_of_target(index, 1, 0)]) == self._first:
                yield step.argval

    def changes_itself(self) -> bool:
        """Return whether a method changes its object, a container: `self[key] = value`, `self.append(x)`."""
        names = [_local(self._steps[end]) for step, end in self._mutated if step.opname not in _SETTING]
        is_container = self.owner is not None and issubclass(self.owner, CONTAINERS)
        return is_container and bool(self._first) and self._first in names

    def changed_on_self(self, changers: _Changers) -> Iterator[str]:
        """Yield the names of the attributes whose content a method changes in place."""
        changed = {end for _, end in self._mutated}
        for end, name in self._held().items():
            if end in changed or self.is_changed_by_call(end, changers):
                yield name

    def changed_arguments(self) -> set[str]:
        """Return the arguments that the code changes in place, by name, without the object of a method."""
        code = self.function.__code__
        arguments = {*code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]} - {self._first}
        return arguments & {_local(self._steps[end]) for _, end in self._mutated}

    def is_changed_by_call(self, end: int, changers: _Changers) -> bool:
        """Return whether what the instructions until `end` load is passed to a function that changes it."""
        index, above = self._taker(end)
        call = self._steps[index]
        if call.opname not in _CALLS or call.arg is None:
            return False
        before = self._steps[index - 1]
        keywords = self._code.co_consts[before.arg or 0] if before.opname == "KW_NAMES" else ()
        position = call.arg - 1 - above
        keyword = keywords[position - call.arg] if position >= call.arg - len(keywords) else ""
        callee = self._below(index - 1, call.arg)
        if self._steps[callee].opname == "PUSH_NULL":
            callee -= 1
        if keyword == "out" or str(self._steps[callee].argval) in _CHANGING:
            return True
        load = self.loads.get(callee)
        if load is None:
            return False
        for function in functions_in(load.value):
            names = function.__code__.co_varnames
            is_method = isinstance(load.value, (classmethod, types.MethodType)) or load.attribute != ""
            is_bound = is_method and not isinstance(load.value, staticmethod)
            name = keyword or next(iter(names[position + is_bound :]), "")
            if name in changers.get(function, ()):
                return True
        return False

    def _held(self) -> dict[int, str]:
        """Return where what an attribute of the object holds is loaded: end -> name of the attribute."""
        found: dict[int, str] = {}
        names: dict[str, str] = {}
        for index, step in enumerate(self._steps[:-2]):
            local, end = _local(step), index
            if local is None:
                continue
            name = names.get(local, "")
            start = index + 1 + (self._steps[index + 1].opname == "COPY")  # self.x += y
            if local == self._first and _is_attribute(self._steps[start]):
                end, name = start, self._steps[start].argval
            while name:
                found[end] = name
                following, element = self._after(end), self._element_behind(end)
                if following is None or not (_is_attribute(following) or element):
                    break
                end = element or end + 1
            if name and following is not None and following.opname == "STORE_FAST":
                names[following.argval] = name
        return found

    @functools.cached_property
    def _mutated(self) -> list[tuple[dis.Instruction, int]]:
        """The instructions that change something in place, and where those end that load it."""
        ends = map(self._end_of_mutated, range(len(self._steps)))
        return [(step, end) for step, end in zip(self._steps, ends, strict=True) if end is not None]

    def _end_of_mutated(self, index: int) -> int | None:
        """Return where the instructions end that load what one changes in place; None if none does."""
        step = self._steps[index]
        if step.opname in ("STORE_SUBSCR", "DELETE_SUBSCR"):
            return self._end_of_target(index, 2, depth=1)
        if step.opname in _SETTING:
            return self._end_of_target(index, 1, depth=0)
        if step.opname == "BINARY_OP" and step.argrepr.endswith("="):
            return self._below(index - 1, 1)  # x += y
        return index - 1 if _is_mutation(step) else None

    def assigned(self) -> Iterator[str]:
        """Yield what is assigned by name: variables of modules, of outer functions, and of classes."""
        outer = self.function.__code__.co_freevars if self._code is self.function.__code__ else ()
        for step in self._steps:
            if step.opname in ("STORE_GLOBAL", "DELETE_GLOBAL"):
                yield f"the module variable {step.argval}"
            elif step.opname == "STORE_DEREF" and step.argval in outer:
                yield f"{step.argval}, a variable of an outer function"
            elif step.opname == "STORE_SUBSCR" and "globals" in self._code.co_names:
                yield "elements of globals()"
        if "setattr" in self._code.co_names and {"type", "__class__"} & {*self._code.co_names}:
            yield "attributes of classes by setattr()"

    def targets(self) -> Iterator[tuple[_Load, str]]:
        """Yield the objects of which an element or an attribute is set or deleted, and which one."""
        for step, end in self._mutated:
            load = None if _is_mutation(step) else self.loads.get(end)
            if load is not None and (step.opname != "BINARY_OP" or _may_change(load.value)):
                yield load, step.argval if step.opname.endswith("ATTR") else "an element"

    def _end_of_target(self, index: int, number: int, depth: int) -> int:
        """Return where the instructions of `target` end, in `target[key] = value` or `target.x = value`."""
        # `number`: Argument of the COPY that `target[key] += value` has behind the target and the key.
        if self._steps[index - 1].opname == "SWAP":  # +=
            for end in range(index - 1, 0, -1):
                if self._steps[end].opname == "COPY" and self._steps[end].arg == number:
                    return self._below(end - number, depth)
        return self._below(index - 1, depth)

    def _below(self, index: int, depth: int) -> int:
        """Return the index of the last instruction that made what lies under some objects on the stack."""
        while index >= 0 and depth:
            step = self._steps[index]
            depth -= dis.stack_effect(step.opcode, step.arg, jump=False)
            index -= 1
        return index

    # -- loads --------------------------------------------------------------------------------------

    def _find_loads(self) -> Iterator[tuple[int, _Load]]:
        """Yield the index of the last instruction of each load, and what it loads, if that exists already."""
        named: set[int] = set()
        for index, step in enumerate(self._steps):
            if step.opname == "IMPORT_NAME":
                self._note_import(index)
            elif (
                step.opname == "STORE_FAST"
                and index not in named
                and "IMPORT" not in self._steps[index - 1].opname
            ):
                self._names.pop(step.argval, None)  # it stands for something else from here on
            root = self._root(index)
            if root is None:
                continue
            load, end = root
            while (following := self._after(end)) is not None:
                element = self._element_behind(end)
                key = following if element == end + 2 else None
                inner = _element(load, key) if element else _member(load, following)
                if inner is None:
                    break
                if not isinstance(load.value, types.ModuleType):
                    yield end, load._replace(next=following)
                load, end = inner, element or end + 1
            if load.path == self._first:
                continue
            stored, value = self._stored_behind(end, load)
            if value is not None:
                self._names[self._steps[stored].argval] = value
                named.add(stored)
            yield end, load._replace(next=following)

    def _stored_behind(self, end: int, load: _Load) -> tuple[int, _Load | None]:
        """Return which instruction names what was loaded, or elements of it in a loop, and what it names."""
        following = self._steps[end + 1 : end + 8]
        names = [step.opname for step in following]
        if names[:1] == ["STORE_FAST"]:
            return end + 1, load
        if names[:2] == ["COPY", "STORE_FAST"]:  # (name := load)
            return end + 2, load
        if "FOR_ITER" not in names:
            return end, None
        stored = names.index("FOR_ITER") + 1
        has_pairs = names[stored : stored + 1] == ["UNPACK_SEQUENCE"]
        stored += 2 * has_pairs
        method = following[0].argval if _is_attribute(following[0]) else ""
        is_loop = names[0] == "GET_ITER" or method == ("items" if has_pairs else "values")
        is_named = names[stored : stored + 1] == ["STORE_FAST"]
        return end + 1 + stored, _element(load, None) if is_loop and is_named else None

    def _element_behind(self, end: int) -> int:
        """Return where an element of what is loaded until `end` is taken, by `[key]`; 0 if none is."""
        index, above = self._taker(end)
        return index if above == 1 and _is_subscript(self._steps[index]) else 0

    def _taker(self, end: int) -> tuple[int, int]:
        """Return which instruction takes what those until `end` load, and how many objects lie above that."""
        # They are followed in the order in which they stand, also where they jump: `x[1 if y else 2]`.
        above = 0
        for index in range(end + 1, len(self._steps)):
            step = self._steps[index]
            if _num_taken(step) > above:
                return index, above
            # Behind a jump stands the other value of `x if y else z`.
            effect = dis.stack_effect(step.opcode, step.arg, jump=False)
            above += -1 if step.opname == "JUMP_FORWARD" else effect
            if above < 0:  # it was called
                break
        return 0, 0

    def _after(self, index: int) -> dis.Instruction | None:
        return self._steps[index + 1] if index + 1 < len(self._steps) else None

    def _root(self, index: int) -> tuple[_Load, int] | None:
        """Return what an instruction loads by a name alone, and the index of the last instruction of that."""
        step = self._steps[index]
        local = _local(step)
        if local is not None:
            if local in self._names:
                return self._names[local], index
            if local != self._first or self.owner is None:
                return None
            if self._is_of_class:
                return _Load(_name_of(self.owner), self.owner), index
            return _Load(local, self.owner, None, self.owner), index
        if step.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            following = self._steps[index + 1 : index + 4]
            calls = [part.opname for part in following].count("CALL")
            if step.argval == "type" and self._first and calls and _local(following[0]) == self._first:
                end = index + 1 + [part.opname for part in following].index("CALL")  # type(self)
                return _Load(_name_of(self.owner), self.owner), end
            space = self.function.__globals__
            if step.argval in space:
                return _Load(step.argval, space[step.argval], space), index
        if step.opname == "LOAD_DEREF" and step.argval in self._outer:
            return _Load(step.argval, self._outer[step.argval]), index
        return None

    @functools.cached_property
    def _outer(self) -> dict[str, Any]:
        """The variables of outer functions that have a value."""
        found = {}
        names = self.function.__code__.co_freevars
        for name, cell in zip(names, self.function.__closure__ or (), strict=False):
            try:
                found[name] = cell.cell_contents
            except ValueError:
                continue
        return found

    def _note_import(self, index: int) -> None:
        """Note the local names that an import inside of the function makes."""
        module: Any = sys.modules.get(self._steps[index].argval)
        for source, target in zip(self._steps[index:], self._steps[index + 1 :], strict=False):
            if target.opname not in ("STORE_FAST", "STORE_DEREF", "IMPORT_FROM"):
                return
            if source.opname == "IMPORT_FROM":
                self._names[target.argval] = _Load(target.argval, getattr(module, source.argval, None))
            elif source.opname == "IMPORT_NAME" and target.opname != "IMPORT_FROM":
                self._names[target.argval] = _Load(target.argval, module)


def _bodies_of(function: types.FunctionType, owner: type | None, is_of_class: bool) -> list[_Body]:
    """Return the bodies of a function and of the functions inside it, which see its first argument."""
    code = function.__code__
    first = code.co_varnames[0] if owner is not None and code.co_argcount else ""
    codes, bodies = [code], []
    while codes:
        code = codes.pop()
        bodies.append(_Body(code, function, owner, first, is_of_class or function.__name__ in _OF_CLASSES))
        codes += [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]
    return bodies


def _local(step: dis.Instruction) -> str | None:
    """Return the local variable that an instruction loads last; None if it loads none."""
    if not step.opname.startswith(("LOAD_FAST", "LOAD_DEREF", "STORE_FAST_LOAD_FAST")):
        return None
    return step.argval[-1] if isinstance(step.argval, tuple) else str(step.argval)


def _is_attribute(step: dis.Instruction) -> bool:
    return step.opname in ("LOAD_ATTR", "LOAD_METHOD")


def _is_subscript(step: dis.Instruction) -> bool:
    return step.opname == "BINARY_SUBSCR" or (step.opname == "BINARY_OP" and step.argrepr == "[]")


def _num_taken(step: dis.Instruction) -> int:
    """Return how many objects an instruction takes from the stack; of calls, only the arguments."""
    if step.opname in _CALLS:
        return step.arg or 0
    if not _is_attribute(step) and step.opname.startswith(_TAKING_NOTHING):
        return 0
    effect = dis.stack_effect(step.opcode, step.arg, jump=False)
    return -effect if step.opname.startswith(_RETURNING_NOTHING) else 1 - effect


def _member(load: _Load, step: dis.Instruction) -> _Load | None:
    """Return what an instruction loads of a module, a class, also through `self`, or an object."""
    # None if it loads nothing, or nothing that can change of an object.
    if not _is_attribute(step):
        return None
    if isinstance(load.value, np.ndarray) and step.argval in _VIEWS:
        return load._replace(path=f"{load.path}.{step.argval}", space=None)
    if not isinstance(load.value, (type, types.ModuleType)):
        held = getattr(load.value, "__dict__", {})
        return _inner(load, f".{step.argval}", held.get(step.argval) if isinstance(held, dict) else None)
    if step.argval == "__class__" and load.owner is not None:
        return _Load(_name_of(load.owner), load.value)
    for base in load.value.__mro__ if isinstance(load.value, type) else (load.value,):
        space = vars(base)
        if step.argval in space:
            attribute = step.argval if load.owner is not None else ""
            return _Load(f"{_name_of(base)}.{step.argval}", space[step.argval], space, None, attribute)
    return None


def _element(load: _Load, key: dis.Instruction | None) -> _Load | None:
    """Return an element that can change, any one if the key is no constant; None if there is none."""
    if not isinstance(load.value, (dict, list, tuple)):
        return None
    if key is None or not key.opname.startswith(("LOAD_CONST", "LOAD_SMALL_INT")):
        inner = load.value.values() if isinstance(load.value, dict) else load.value
        return _inner(load, "[...]", next(filter(_may_change, inner), None))
    try:
        return _inner(load, f"[{key.argrepr}]", load.value[key.argval])
    except (LookupError, TypeError):
        return None


def _inner(load: _Load, name: str, value: Any) -> _Load | None:
    """Return the load of a part of an object; None if it cannot change."""
    return load._replace(path=load.path + name, value=value, space=None) if _may_change(value) else None


def _may_change(value: Any) -> bool:
    """Return whether an object can change, as far as its type tells."""
    if isinstance(value, (type, types.ModuleType)) or functions_in(value):
        return False
    return isinstance(value, CONTAINERS) or isinstance(getattr(value, "__dict__", None), dict)


def _name_of(value: Any) -> str:
    """Return the full name of a class or a module."""
    return (
        value.__name__ if isinstance(value, types.ModuleType) else f"{value.__module__}.{value.__qualname__}"
    )


def _is_mutation(step: dis.Instruction | None) -> bool:
    """Return whether an instruction loads a method that changes a container in place."""
    return step is not None and _is_attribute(step) and step.argval in _MUTATORS


def is_drawn(value: Any) -> bool:
    """Return whether an object is a generator of random numbers, or an iterator."""
    return isinstance(value, RESEEDABLE) or (hasattr(value, "__next__") and not isinstance(value, type))


def functions_in(value: Any) -> list[types.FunctionType]:
    """Return the functions behind a function, a method, a property, or what a decorator returned."""
    value = getattr(value, "py_func", value) if not isinstance(value, type) else None  # of numba
    if isinstance(value, types.FunctionType):
        return [value, *functions_in(getattr(value, "__wrapped__", None))]
    if isinstance(value, (staticmethod, classmethod, types.MethodType)):
        return functions_in(value.__func__)
    if isinstance(value, property):
        return [found for accessor in (value.fget, value.fset) for found in functions_in(accessor)]
    if isinstance(value, (functools.partial, functools.cached_property, functools.partialmethod)):
        return functions_in(value.func)
    wrapped = (
        None if value is None else vars(type(value)).get("__wrapped__") or getattr(value, "__wrapped__", None)
    )
    return functions_in(wrapped) if isinstance(wrapped, types.FunctionType) else []


def global_generator(value: Any, path: str = "") -> str:
    """Return the module whose global generator an object is or uses; "" if it uses none."""
    owner = getattr(value, "__self__", value)
    if owner is random or owner is random._inst:
        return "random"
    name = path.rpartition(".")[2]
    if owner is np.random or owner is np.random.mtrand._rand:
        return "numpy.random"
    if name in _SEEDING and getattr(np.random, name, None) is value:
        return "numpy.random"
    torch = sys.modules.get("torch")
    if torch is not None and name in _TORCH and getattr(torch, name, None) is value:
        return "torch"
    return ""
