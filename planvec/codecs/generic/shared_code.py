"""Reads in the code of environments what they share with others in one process, and whether they use hashes.

A trial (`shared`) shows what environments change beside themselves in their first steps. Their code also
shows what happens rarely or late:

    global COUNT; COUNT += 1    CACHE[key] = value    LOG["x"].append(x)    type(self).best = x
    self.config.level += 1      shuffle(self.DECK)    np.random.rand()

It is read from top to bottom, and what a name stands for is followed through attributes, elements and other
names, not through calls. What changes in ways that this misses is watched while the environments run
(`Watch`). Only the code of the program and of the packages that define the environments is read.
"""

from __future__ import annotations

import dis
import functools
import itertools
import sys
import types
from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from planvec.codecs.generic.attributes import RESEEDABLE
from planvec.codecs.positions import GLOBAL_GENERATORS
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
_READING_PART = ("LOAD_ATTR", "LOAD_METHOD")
_VIEWS = ("T", "flat", "imag", "real")  # attributes of arrays in the memory of the array
# beginnings of the names of instructions that leave no new object on the stack
_WITHOUT_RESULT = (
    *("STORE_", "POP_", "DELETE_", "RETURN_", "LIST_", "SET_", "DICT_", "MAP_", "RAISE_", "RERAISE"),
    *("JUMP_", "END_", "NOP", "NOT_TAKEN", "CACHE", "RESUME", "MAKE_CELL", "COPY_FREE_VARS", "EXTENDED_ARG"),
)
# instructions behind which the next one is reached by a jump alone
_LEAVING = ("JUMP_FORWARD", "JUMP_BACKWARD", "RETURN_VALUE", "RETURN_CONST", "RAISE_", "RERAISE")
# methods that run when a class is defined, once for all environments, or that say what its annotations are
_AT_DEFINITION = ("__init_subclass__", "__set_name__", "__annotate__", "__annotate_func__")
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
_Changers = Mapping[types.FunctionType, Collection[str | None]]
_ELEMENT = "an element"  # stands for the part of a container that is changed
_UNKNOWN: Any = object()  # the value of an object that does not exist yet, or that the code does not tell


class _Value(NamedTuple):
    """Says what an object on the stack is: `np`, then `random` of it, then `rand` of that."""

    path: str = ""  # the names, with dots; "" for a constant of the code
    value: Any = _UNKNOWN  # the object
    # the namespace of the last name; None if it has none: an element, for example
    space: Mapping[str, Any] | None = None
    owner: type | None = None  # the class of the object, for the first argument of a method; None otherwise
    attribute: str = ""  # the attribute of its class through which the first argument shows it; "" otherwise
    held: str = (
        ""  # the attribute of the first argument that holds it, or what it is part of; "" if none does
    )
    local: str | None = None  # the argument of the function that it is; None if it is none
    is_items: bool = False  # whether it is the pairs of keys and elements of the object

    @property
    def name(self) -> str:
        """The last one of the names."""
        return self.path.rpartition(".")[2]

    def member(self, name: str) -> _Value:
        """Return an attribute. Its value is known if it can change, or belongs to a module or a class."""
        inner = _Value(f"{self.path}.{name}", held=self.held)
        if isinstance(self.value, np.ndarray) and name in _VIEWS:
            return inner._replace(value=self.value, attribute=self.attribute)
        if not isinstance(self.value, (type, types.ModuleType)):
            held = getattr(self.value, "__dict__", None)
            value = held.get(name) if isinstance(held, dict) else None
            return inner._replace(value=value, attribute=self.attribute) if _may_change(value) else inner
        if name == "__class__" and self.owner is not None:
            return _Value(_name_of(self.owner), self.value)
        for base in self.value.__mro__ if isinstance(self.value, type) else (self.value,):
            space = vars(base)
            if name in space:
                attribute = name if self.owner is not None else ""
                path = f"{_name_of(base)}.{name}"
                return inner._replace(path=path, value=space[name], space=space, attribute=attribute)
        return inner

    def element(self, key: _Place) -> _Value:
        """Return an element that can change: any one if the key is no constant."""
        if self.is_items:
            return self._replace(is_items=False)
        unknown = _Value(held=self.held)
        if not isinstance(self.value, (dict, list, tuple)):
            return unknown
        if len(key) == 1 and not key[0].path and key[0].value is not _UNKNOWN:
            name = f"[{key[0].value!r}]"
            try:
                value = self.value[key[0].value]
            except (LookupError, TypeError):
                return unknown
        else:
            inner = self.value.values() if isinstance(self.value, dict) else self.value
            name, value = "[...]", next(filter(_may_change, inner), None)
        if not _may_change(value):
            return unknown
        return unknown._replace(path=self.path + name, value=value, attribute=self.attribute)


# what one place of the stack may hold: several values where ways through the code meet
_Place = tuple[_Value, ...]
_ANYTHING: _Place = (_Value(),)
_NULL: _Place = ()  # lies beside a function that is called without an object


class _Call(NamedTuple):
    """Holds an object that is passed to a function."""

    value: _Value  # the object
    function: _Place
    position: int  # the number of the argument
    keyword: str  # its name; "" if it is passed by its position

    def changes(self, changers: _Changers) -> bool:
        """Return whether the function changes the object."""
        if self.keyword == "out":
            return True
        for load in self.function:
            if load.name in _CHANGING:
                return True
            for function in functions_in(load.value):
                is_method = isinstance(load.value, (classmethod, types.MethodType)) or load.attribute != ""
                is_bound = is_method and not isinstance(load.value, staticmethod)
                names = function.__code__.co_varnames[self.position + is_bound :]
                if (self.keyword or next(iter(names), "")) in changers.get(function, ()):
                    return True
        return False


class CodeReader:
    """Reads functions and classes, and the functions and classes that they use."""

    def __init__(self, roots: Iterable[object], packages: Iterable[str]) -> None:
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
            body.makes_sets or any(itertools.starmap(self._may_hash, body.loads)) for body in bodies
        )
        self._stored = {name for body in bodies for name in body.stored}
        changers: dict[types.FunctionType, set[str | None]] = defaultdict(set)
        for body in bodies:
            changers[body.function] |= {
                value.local for value, _ in body.changed if value.local not in (None, body.first)
            }
        for body in bodies:
            body.changed += [(call.value, "") for call in body.calls if call.changes(changers)]
        # names of attributes whose content methods change in place
        self.changed_on_self = {value.held for body in bodies for value, _ in body.changed} - {""}
        # classes whose methods set attributes later than `__init__`
        self.changing = {
            body.owner
            for body in bodies
            if (body.stored or body.changes_itself()) and not body.name.endswith(".__init__")
        }
        uses = [f"{body.name} {text}" for body in bodies for text in self._uses(body)]
        # texts that say what the code changes, or draws from, that others in the process share
        self.uses = [use for use in uses if not use.endswith(_HARMLESS)]

    def is_own(self, value: object) -> bool:
        """Return whether a class, function or module belongs to the program, or to a package that is read."""
        name = value.__name__ if isinstance(value, types.ModuleType) else getattr(value, "__module__", None)
        if not isinstance(name, str):
            return False
        package = name.partition(".")[0]
        if name == "__main__" or package in self._packages:
            return True
        path = getattr(sys.modules.get(name), "__file__", None)
        return package != "planvec" and isinstance(path, str) and not is_installed(path)

    def _is_new(self, value: object) -> bool:
        is_new = id(value) not in self._seen
        self._seen[id(value)] = value
        return is_new

    def _used_by(self, body: _Body) -> Iterator[Any]:
        """Note the variables that a function uses, and yield its functions and classes."""
        for load, _ in body.loads:
            if isinstance(load.value, type) or functions_in(load.value):
                yield load.value
            elif not isinstance(load.value, types.ModuleType):
                if load.space is not None and not global_generator(load.value, load.path):
                    self.variables.setdefault(body.full_name(load), (load.space, load.name))
                yield type(load.value)

    def _may_hash(self, load: _Value, is_part_read: bool) -> bool:
        value = load.value
        if isinstance(value, (set, frozenset)):
            return True
        if isinstance(value, type) and is_part_read:
            return False  # what is read of it counts
        if not isinstance(value, (type, types.FunctionType, types.BuiltinFunctionType)) or self.is_own(value):
            return False
        return str(value.__module__).partition(".")[0] not in _WITHOUT_HASHES

    def _uses(self, body: _Body) -> Iterator[str]:
        """Yield what a function changes, or draws from, that others in the process share."""
        for name in body.assigned:
            yield f"assigns {name}"
        for load, _ in body.loads:
            generator = global_generator(load.value, load.path)
            if generator:
                verb = "seeds" if load.path.endswith("seed") else "uses"
                yield f"{verb} the global generator of {generator}"
            elif load.attribute in self._stored:  # it belongs to one environment alone
                continue
            elif type(load.value) in self.changing:
                yield f"uses {body.full_name(load)}, whose methods change it"
            elif is_drawn(load.value):
                yield f"draws from {body.full_name(load)}"
        for load, part in body.changed:
            is_known = load.path and load.value is not _UNKNOWN and load.owner is None
            if not is_known or load.attribute in self._stored:
                continue
            if part:
                yield f"assigns {part} of {body.full_name(load)}"
            elif isinstance(load.value, CONTAINERS):
                yield f"changes {body.full_name(load)}"


class _Body:
    """Follows the instructions of one code object, in the order in which they stand, with the stack."""

    # Loops are followed once. Where two ways meet, what lies on the stack comes from either.

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
        self.owner, self.first, self._is_of_class = owner, first, is_of_class
        # what it reads that exists already, and whether only a part of that is read
        self.loads: list[tuple[_Value, bool]] = []
        # What it changes in place, and which part: an attribute, or `_ELEMENT`. "" if `append` or `+=` does.
        self.changed: list[tuple[_Value, str]] = []
        self.calls: list[_Call] = []
        self.stored: set[str] = set()  # the attributes that it sets on its first argument
        # what is assigned by name: variables of modules, of outer functions, and of classes
        self.assigned: list[str] = []
        outer = function.__code__
        arguments = outer.co_varnames[: outer.co_argcount + outer.co_kwonlyargcount]
        self._names: dict[str, _Place] = {name: (_Value(name, local=name),) for name in arguments}
        if owner is not None and first:
            this = _Value(_name_of(owner), owner) if is_of_class else _Value(first, owner, owner=owner)
            self._names[first] = (this._replace(local=first),)
        self._stack: list[_Place] = []
        self._keywords: tuple[str, ...] = ()  # the names of the last arguments of the next call
        steps = list(dis.get_instructions(code))
        self._follow(steps)
        names = {*code.co_names}
        if "setattr" in names and {"type", "__class__"} & names:
            self.assigned.append("attributes of classes by setattr()")
        # whether the code makes sets, or asks for hashes or addresses
        self.makes_sets = (
            bool(_HASHING & names)
            or any(isinstance(constant, frozenset) for constant in code.co_consts)
            or any(step.opname in ("BUILD_SET", "SET_ADD") for step in steps)
        )

    def full_name(self, load: _Value) -> str:
        """Return the name of a loaded object, for messages."""
        if isinstance(load.value, (type, types.ModuleType)):
            return _name_of(load.value)
        return load.path if "." in load.path else f"{self.function.__module__}.{load.path}"

    def changes_itself(self) -> bool:
        """Return whether a method changes its object, a container: `self[key] = value`, `self.append(x)`."""
        if self.owner is None or not issubclass(self.owner, CONTAINERS):
            return False
        return any(value.local == self.first and part in ("", _ELEMENT) for value, part in self.changed)

    def _follow(self, steps: Sequence[dis.Instruction]) -> None:
        waiting: dict[int, list[_State]] = defaultdict(list)  # the states in which jumps reach instructions
        is_reached = False
        for step, following in itertools.zip_longest(steps, steps[1:]):
            states = waiting.pop(step.offset, [])
            if is_reached:
                states.append((self._stack, self._names))
            if not states:  # the first one, or one that handles an exception: what lies below is unknown
                states.append(([_ANYTHING] * self._code.co_stacksize, self._names))
            self._stack, self._names = functools.reduce(_either, states)
            if step.opcode in dis.hasjrel and step.argval > step.offset:
                effect = dis.stack_effect(step.opcode, step.arg, jump=True)
                stack = self._stack[:effect] if effect < 0 else self._stack + [_ANYTHING] * effect
                waiting[step.argval].append((stack, dict(self._names)))
            self._take(step, following is not None and following.opname in _READING_PART)
            is_reached = not step.opname.startswith(_LEAVING)

    def _take(self, step: dis.Instruction, is_part_read: bool) -> None:
        """Do with the stack what an instruction does."""
        name, number, stack = step.opname, step.arg or 0, self._stack
        effect = dis.stack_effect(step.opcode, step.arg, jump=False)
        names = step.argval if isinstance(step.argval, tuple) else (step.argval,)
        if name == "STORE_FAST_LOAD_FAST":
            self._names[names[0]] = stack.pop()
            self._load(self._names.get(names[1], _ANYTHING), is_part_read)
        elif name.startswith(("LOAD_FAST", "LOAD_DEREF")):
            for local in names:
                self._load(self._names.get(local, _ANYTHING), is_part_read)
        elif name.startswith("STORE_FAST"):
            for local in names:
                self._names[local] = stack.pop()
        elif name == "STORE_DEREF":
            self._names[step.argval] = stack.pop()
            if self._code is self.function.__code__ and step.argval in self._code.co_freevars:
                self.assigned.append(f"{step.argval}, a variable of an outer function")
        elif name in ("LOAD_GLOBAL", "LOAD_NAME"):
            space = self.function.__globals__
            stack += [_NULL] * (effect - 1)
            self._load((_Value(step.argval, space.get(step.argval, _UNKNOWN), space),), is_part_read)
        elif name.startswith(("LOAD_CONST", "LOAD_SMALL_INT")):
            stack.append((_Value(value=step.argval),))
        elif name == "PUSH_NULL":
            stack.append(_NULL)
        elif name == "IMPORT_NAME":
            is_package = stack.pop()[0].value is None  # `import a.b`, not `from a.b import c`
            stack.pop()
            module = step.argval.partition(".")[0] if is_package else step.argval
            stack.append((_Value(step.argval, sys.modules.get(module, _UNKNOWN)),))
        elif name == "IMPORT_FROM":
            module = stack[-1][0].value
            stack.append((_Value(step.argval, getattr(module, step.argval, _UNKNOWN)),))
        elif name in _READING_PART:
            place = stack.pop()
            if step.argval in _MUTATORS:
                self._change(place, "")
            self._load(tuple(self._member(value, step.argval) for value in place), is_part_read)
            stack += [place] * effect  # the object of a method
        elif name == "BINARY_SUBSCR" or (name == "BINARY_OP" and step.argrepr == "[]"):
            key = stack.pop()
            self._load(tuple(value.element(key) for value in stack.pop()), is_part_read)
        elif name == "BINARY_OP" and step.argrepr.endswith("="):
            stack.pop()
            place = stack.pop()
            self._change(place, "")
            stack.append(place)
        elif name in ("STORE_SUBSCR", "DELETE_SUBSCR", "STORE_SLICE"):
            taken = [stack.pop() for _ in range(-effect)]
            self._change(taken[2 if name == "STORE_SLICE" else 1], _ELEMENT)
            if name == "STORE_SUBSCR" and "globals" in self._code.co_names:
                self.assigned.append("elements of globals()")
        elif name in ("STORE_ATTR", "DELETE_ATTR"):
            place = stack.pop()
            self._change(place, step.argval)
            if name == "STORE_ATTR":
                stack.pop()
                if not self._is_of_class and any(value.local == self.first for value in place):
                    self.stored.add(step.argval)
        elif name == "FOR_ITER":
            self._load(tuple(value.element(_ANYTHING) for value in stack[-1]), is_part_read)
        elif name == "UNPACK_SEQUENCE":
            stack += [tuple(value.element(_ANYTHING) for value in stack.pop())] * number
        elif name == "COPY":
            stack.append(stack[-number])
        elif name == "SWAP":
            stack[-1], stack[-number] = stack[-number], stack[-1]
        elif name == "KW_NAMES":
            self._keywords = self._code.co_consts[number]
        elif name in ("CALL", "CALL_KW"):
            if name == "CALL_KW":
                self._keywords = stack.pop()[0].value
            self._call(number, is_part_read)
        elif name not in ("GET_ITER", "PRECALL"):  # an iterator stands for what it goes through
            if name in ("STORE_GLOBAL", "DELETE_GLOBAL"):
                self.assigned.append(f"the module variable {step.argval}")
            has_result = effect <= 0 and not name.startswith(_WITHOUT_RESULT)
            for _ in range(has_result - effect):
                stack.pop()
            stack += [_ANYTHING] * max(effect, has_result)

    def _load(self, place: _Place, is_part_read: bool) -> None:
        """Put what is read on the stack."""
        self._stack.append(place)
        for value in place:
            is_known = value.value is not _UNKNOWN and value.owner is None
            if is_known and not (is_part_read and isinstance(value.value, types.ModuleType)):
                self.loads.append((value, is_part_read))

    def _member(self, value: _Value, name: str) -> _Value:
        member = value.member(name)
        return member._replace(held=name) if value.local == self.first else member

    def _change(self, place: _Place, part: str) -> None:
        self.changed += [(value, part) for value in place]

    def _call(self, num_arguments: int, is_part_read: bool) -> None:
        """Call a function with the last objects on the stack."""
        arguments = [self._stack.pop() for _ in range(num_arguments)][::-1]
        second, first = self._stack.pop(), self._stack.pop()
        function, target = (first, second) if first else (second, _NULL)
        keywords = [""] * (num_arguments - len(self._keywords)) + [*self._keywords]
        self._keywords = ()
        for position, (place, keyword) in enumerate(zip(arguments, keywords, strict=True)):
            self.calls += [_Call(value, function, position, keyword) for value in place]
        result: _Place = ()
        called = {value.name for value in function}
        if called == {"type"} and num_arguments == 1:
            owners = [value.owner for value in arguments[0] if value.owner is not None]
            result = tuple(_Value(_name_of(owner), owner) for owner in owners)
        elif called == {"values"}:
            result = target
        elif called == {"items"}:
            result = tuple(value._replace(is_items=True) for value in target)
        self._load(result or _ANYTHING, is_part_read)


_State = tuple[list[_Place], dict[str, _Place]]  # the stack, and what local names stand for


def _either(first: _State, second: _State) -> _State:
    """Return what holds where two ways meet."""

    def either(one: _Place, other: _Place) -> _Place:
        if one is other:
            return one
        return tuple(
            {value._replace(value=id(value.value), space=None): value for value in (*one, *other)}.values()
        )

    (stack, names), (other_stack, other_names) = first, second
    names = {
        name: either(names.get(name, _ANYTHING), other_names.get(name, _ANYTHING))
        for name in {**names, **other_names}
    }
    pairs = zip(reversed(stack), reversed(other_stack), strict=False)  # what is known lies on top
    return [either(*pair) for pair in pairs][::-1], names


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


def _may_change(value: object) -> bool:
    """Return whether an object can change, as far as its type tells."""
    if isinstance(value, (type, types.ModuleType)) or functions_in(value):
        return False
    return isinstance(value, CONTAINERS) or isinstance(getattr(value, "__dict__", None), dict)


def _name_of(value: Any) -> str:
    """Return the full name of a class or a module."""
    return (
        value.__name__ if isinstance(value, types.ModuleType) else f"{value.__module__}.{value.__qualname__}"
    )


def is_drawn(value: object) -> bool:
    """Return whether an object is a generator of random numbers, or an iterator."""
    return isinstance(value, RESEEDABLE) or (hasattr(value, "__next__") and not isinstance(value, type))


def functions_in(value: object) -> list[types.FunctionType]:
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


def global_generator(value: object, path: str = "") -> str:
    """Return the module whose global generator an object is or uses; "" if it uses none."""
    owner = getattr(value, "__self__", value)
    name = path.rpartition(".")[2]
    for module, generator in GLOBAL_GENERATORS.items():
        if owner is generator or owner is sys.modules[module]:
            return module
    if name in _SEEDING and getattr(np.random, name, None) is value:
        return "numpy.random"
    torch = sys.modules.get("torch")
    if torch is not None and name in _TORCH and getattr(torch, name, None) is value:
        return "torch"
    return ""
