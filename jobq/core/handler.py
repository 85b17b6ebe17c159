"""Read a handler's signature: which of its parameters are payload, and how stored JSON becomes their values.

Promises: what cannot work is refused when the handler is registered, with a `HandlerError` that names the function, the
parameter and the remedy; a payload that `bind_payload` returns was decoded once already, exactly as the run will
decode it. Names, retries and time-outs of a kind are not its business, and the class of `job` is given to it.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from types import FunctionType, SimpleNamespace, new_class
from typing import Any, NotRequired, TypedDict, get_origin, get_type_hints

import msgspec
import msgspec.inspect as mi

from jobq.core.names import shown
from jobq.core.payload import encode as encode_payload
from jobq.errors import HandlerError, PayloadError

# What msgspec would decode as the key of a mapping, and no JSON object can have as one.
_NO_KEYS = mi.BoolType | mi.NoneType | mi.CollectionType | mi.TupleType | mi.NamedTupleType
_NO_KEYS |= mi.DictType | mi.TypedDictType | mi.StructType | mi.DataclassType

_UNSHOWN = "no value is shown, because the kind redacts fields"
_RESOLVABLE = "import the name at run time, not under TYPE_CHECKING, or define it at the top of the module"
_MISSING_FIELD = re.compile(r"^Object missing required field `([^`]+)`")
_LOCATED = re.compile(r"(.*) - at `(?:key` in `)?(\$.*)`", re.DOTALL)  # how msgspec's messages end
_STEP = re.compile(r"\.([^.\[]+)|\[(\d+)\]")


class PayloadField(msgspec.Struct, frozen=True):
    """One parameter of a handler that is filled from the payload. *annotation* is its text, for people."""

    name: str
    annotation: str
    required: bool


class HandlerSignature(msgspec.Struct, frozen=True):
    """What a handler takes: `job` or not, and the fields of its payload. Made by `read_signature`."""

    kind: str
    function: str
    """Module and qualified name."""
    is_async: bool
    """Whether it is an `async def`; a plain `def` runs in a thread."""
    takes_job: bool
    """Whether it is called as `function(job, **fields)` or as `function(**fields)`."""
    fields: tuple[PayloadField, ...]
    positional: tuple[str, ...]
    """Names of the fields that `bind_payload` also takes by position."""
    names: frozenset[str]
    decoder: msgspec.json.Decoder[Any]
    redact: tuple[str, ...] = ()
    """Paths of payload fields whose values no message shows; with any, a `PayloadError` shows no value at all."""

    def bind_payload(self, /, *args: object, **kwargs: object) -> bytes:
        """Encode the payload of a call `function(*args, **kwargs)`, `job` left out.

        Parameters that are not given stay out of the payload: their defaults are those of the code that runs the job.
        Raises `PayloadError` for a call or a value that the handler would not take.
        """
        return self.encode(self._by_name(args, kwargs) if args else kwargs)

    def encode(self, values: Mapping[str, object]) -> bytes:
        """Encode *values* as the payload, and decode it to see that the handler would take it.

        Raises `PayloadError` for names that the handler does not know, and values that do not fit.
        """
        try:
            encoded = encode_payload(values, kind=self.kind)
        except PayloadError as exc:
            if not self.redact:
                raise
            message = f"payload of {self}: {exc.field} cannot be stored ({_UNSHOWN}); pass plain values"
            raise PayloadError(message, field=exc.field) from None
        try:
            decoded = self.decoder.decode(encoded)
        except Exception as exc:  # msgspec's, and whatever classes of the user raise while they are made
            misfit = self._misfit(values, exc, "pass what the annotation says, or change it")
            raise misfit from (None if self.redact else exc)
        if len(decoded) != len(values):  # every known name was decoded, so the rest is unknown
            for name in values.keys() - self.names:
                message = f"payload of {self}: there is no parameter {shown(name)}; remove it, or add it to the handler"
                raise PayloadError(message, field=f"$.{name}", value=values[name])
        return encoded

    def decode(self, payload: str | bytes) -> dict[str, object]:
        """Decode a stored *payload* to the keyword arguments of the call; fields unknown to the handler are ignored.

        Raises `PayloadError` with the path if the payload does not fit.
        """
        try:
            arguments: dict[str, object] = self.decoder.decode(payload)
        except Exception as exc:  # as above; never let a payload raise anything else into the worker
            raise self._misfit(_plain_json(payload), exc, "fix the handler, then redrive the job") from exc
        return arguments

    def __str__(self) -> str:
        """Show kind, function and payload, as messages do: `'send_receipt' (app.send_receipt(order_id: int))`."""
        fields = (f"{field.name}: {field.annotation}{'' if field.required else ' = ...'}" for field in self.fields)
        return f"{shown(self.kind)} ({self.function}({', '.join(fields)}))"

    def _by_name(self, args: tuple[object, ...], kwargs: dict[str, object]) -> dict[str, object]:
        if len(args) > len(self.positional):
            message = f"payload of {self}: {len(args)} positional arguments are too many; pass them by name"
            raise PayloadError(message, field="$", value=args)
        values = dict(zip(self.positional, args, strict=False))
        for name in values.keys() & kwargs.keys():
            message = f"payload of {self}: {name} is given twice, by position and by name; pass it once"
            raise PayloadError(message, field=f"$.{name}", value=kwargs[name])
        return values | kwargs

    def _misfit(self, values: object, exc: Exception, remedy: str) -> PayloadError:
        located = _LOCATED.fullmatch(str(exc))
        reason, path = located.groups() if located else (str(exc), "$")
        value = None if self.redact else _follow(values, path)
        if missing := _MISSING_FIELD.match(reason):
            path = f"{path}.{missing[1]}"
            message = f"payload of {self}: {path} is missing; pass it, or give the parameter a default"
            return PayloadError(message, field=path, value=value)
        if self.redact:
            # msgspec's words for a wrong type quote no value; others may.
            why = f"{reason}; {_UNSHOWN}" if reason.startswith("Expected `") else _UNSHOWN
            return PayloadError(f"payload of {self}: {path} does not fit ({why}); {remedy}", field=path)
        message = f"payload of {self}: {path} = {shown(value)} does not fit: {reason}; {remedy}"
        return PayloadError(message, field=path, value=value)


def read_signature(function: Callable[..., object], *, kind: str, job_type: type) -> HandlerSignature:
    """Read the signature of *function*, the handler of *kind*.

    *job_type* is the class that marks a first parameter as the job itself; every other parameter is payload.
    Raises `HandlerError` for what is no plain function and for parameters that cannot be filled from JSON.
    """
    qualname = getattr(function, "__qualname__", None)
    name = f"{function.__module__}.{qualname}" if qualname else shown(function)
    where = f"handler {shown(kind)} ({name})"
    parameters, scope = _parameters(where, function)
    takes_job = False
    shape: dict[str, object] = {}
    fields = []
    for position, parameter in enumerate(parameters):
        at = f"{where}: parameter `{parameter}`"
        hint = _resolved(at, parameter, scope)
        if hint is job_type or get_origin(hint) is job_type:
            if position > 0 or parameter.kind is parameter.KEYWORD_ONLY:
                raise HandlerError(f"{at} is the job, which must come first, before any `*`; move it there")
            takes_job = True
            continue
        if parameter.kind is parameter.POSITIONAL_ONLY:
            raise HandlerError(f"{at} is positional-only, but payload is passed by name; put it after the `/`")
        if fault := _annotation_fault(hint):
            raise HandlerError(f"{at} {fault}")
        required = parameter.default is parameter.empty
        shape[parameter.name] = hint if required else NotRequired[hint]
        annotation = parameter.annotation
        text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
        fields.append(PayloadField(parameter.name, text, required))
    # A TypedDict decodes straight to the arguments of the call, and leaves out what was left out.
    payload_type = new_class("Payload", (TypedDict,), {}, lambda body: body.update(__annotations__=shape))
    return HandlerSignature(
        kind=kind,
        function=name,
        is_async=inspect.iscoroutinefunction(function),
        takes_job=takes_job,
        fields=tuple(fields),
        positional=tuple(p.name for p in parameters[takes_job:] if p.kind is p.POSITIONAL_OR_KEYWORD),
        names=frozenset(shape),
        decoder=msgspec.json.Decoder(payload_type),
    )


def redact_fault(signature: HandlerSignature, path: object) -> str | None:
    """Say why *path* names no field of the payload, as the end of a sentence with its remedy, or return None."""
    if not isinstance(path, str):
        return "is no string; write the name of a parameter, or a path such as 'card.number'"
    fields = ", ".join(field.name for field in signature.fields) or "no parameter at all"
    if not _leads_somewhere(mi.type_info(signature.decoder.type), path.split(".")):
        return f"names no field of the payload; the handler has {fields}"
    return None


def _leads_somewhere(part: mi.Type, steps: list[str]) -> bool:
    """Say whether JSON of this type may have something at the path of these *steps*."""
    match part:
        case mi.Metadata(type=inner):
            return _leads_somewhere(inner, steps)
        case mi.UnionType(types=types):
            return any(_leads_somewhere(one, steps) for one in types)
        case mi.AnyType():
            return all(steps)
        case _ if not steps:
            return True
        case mi.CollectionType(item_type=item):
            return _leads_somewhere(item, steps)
        case mi.TupleType(item_types=items):
            return any(_leads_somewhere(item, steps) for item in items)
        case mi.DictType(value_type=value):
            return bool(steps[0]) and _leads_somewhere(value, steps[1:])
        case mi.TypedDictType(fields=fields) | mi.StructType(fields=fields) | mi.DataclassType(fields=fields):
            return any(_leads_somewhere(one.type, steps[1:]) for one in fields if one.encode_name == steps[0])
        case _:
            return False


def _parameters(where: str, function: Callable[..., object]) -> tuple[list[inspect.Parameter], dict[str, Any]]:
    """Return the parameters of *function*, and the module's names that their annotations are made of."""
    if not isinstance(function, FunctionType):
        raise HandlerError(f"{where} is no plain function but a {type(function).__name__}; write one that calls it")
    original = inspect.unwrap(function)
    if inspect.isgeneratorfunction(original) or inspect.isasyncgenfunction(original):
        raise HandlerError(f"{where} is a generator, whose body would never run; take the `yield` out of it")
    if inspect.iscoroutinefunction(original) and not inspect.iscoroutinefunction(function):
        raise HandlerError(f"{where} is an `async def` in a plain wrapper; make the wrapper an `async def` too")
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except Exception as exc:  # Python 3.14 evaluates annotations here
        raise HandlerError(f"{where}: its annotations cannot be resolved ({exc}); {_RESOLVABLE}") from exc
    for parameter in parameters:
        if parameter.kind is parameter.VAR_POSITIONAL or parameter.kind is parameter.VAR_KEYWORD:
            raise HandlerError(
                f"{where}: parameter `{parameter}` has no fixed fields; name each one, such as `order_id: int`"
            )
    return parameters, getattr(original, "__globals__", function.__globals__)


def _resolved(at: str, parameter: inspect.Parameter, scope: dict[str, Any]) -> object:
    name, annotation = parameter.name, parameter.annotation
    if annotation is parameter.empty:
        example = "Job" if name == "job" else "int"
        raise HandlerError(f"{at} has no annotation, which says how to decode it; write `{name}: {example}`, say")
    try:  # one by one, so that the error can name the parameter, and the return type does not matter
        hints = get_type_hints(SimpleNamespace(__annotations__={name: annotation}), scope, include_extras=True)
    except Exception as exc:
        raise HandlerError(f"{at}: its annotation cannot be resolved ({exc}); {_RESOLVABLE}") from exc
    hint: object = hints[name]
    return hint


def _annotation_fault(hint: Any) -> str | None:
    """Say what in *hint* cannot come from JSON, as the end of a sentence, or return None."""
    try:
        msgspec.json.Decoder(hint)
        todo: list[object] = [mi.type_info(hint)]
    except Exception as exc:
        return f"cannot be decoded ({exc}); use a narrower annotation"
    seen: set[int] = set()  # types may contain themselves
    while todo:
        part = todo.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        match part:
            case mi.CustomType(cls=cls) if cls is not object:
                return f"contains {cls.__qualname__}, which has no JSON form; take an id, a dataclass or a Struct"
            case mi.RawType() | mi.ExtType():
                return f"contains msgspec.{type(part).__name__[:-4]}, which is no JSON value; annotate the value"
            case mi.DictType(key_type=key) if isinstance(key, _NO_KEYS):
                return "contains a mapping whose keys are no strings, numbers or times; take a list of pairs"
            case tuple():
                todo += part
            case mi.Type() | mi.Field():
                todo += [getattr(part, name) for name in part.__struct_fields__]
            case _:
                pass
    return None


def _plain_json(payload: str | bytes) -> object:
    try:
        document: object = msgspec.json.decode(payload)
    except Exception:
        return payload
    return document


def _follow(document: object, path: str) -> object:
    """Return what stands at *path*, or the last part on the way to it that can be reached."""
    value = document
    for name, index in _STEP.findall(path):
        try:
            if index or isinstance(value, Mapping):
                value = value[int(index) if index else name]  # type: ignore[index]  # any sequence
            else:
                value = getattr(value, name)
        except Exception:
            break
    return value
