"""CIFAR-10 and CIFAR-100 from their official files: pickles, so they are read by a restricted unpickler."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np

from scommer.data.dataset import Dataset, from_arrays
from scommer.data.fetch import SOURCES, md5_of
from scommer.errors import DataNotFound, UsageError, check_name

# Published md5 sums of the training files, then the test file, then the file of class names.
MD5 = {
    "cifar10": {
        "data_batch_1": "c99cafc152244af753f735de768cd75f",
        "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
        "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
        "data_batch_4": "634d18415352ddfa80567beed471001a",
        "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
        "test_batch": "40351d587109b95175f43aff81a1287e",
        "batches.meta": "5ff9c542aee3614f3951f8cda6e48888",
    },
    "cifar100": {
        "train": "16019d7e3df5f24257cddd939b257f8d",
        "test": "f0ef6b0ae62326f3e7ffdfab6717acfc",
        "meta": "7973b15100ade9c7d40fb424638fde48",
    },
}
KEYS = {  # of labels and class names
    "cifar10": (b"labels", b"label_names"),
    "cifar100": (b"fine_labels", b"fine_label_names"),
}

NUMERIC_DTYPES = {"u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f2", "f4", "f8"}


def load_cifar(name: str, root: Path) -> Dataset:
    """Return the data set `name` from its folder below `root`. All md5 sums are checked before any file is read."""
    check_name("CIFAR data set", name, MD5)
    folder = root / SOURCES[name].folder
    _check_files(name, folder)
    *train, test, meta = (read_pickle(folder / file) for file in MD5[name])
    label_key, names_key = KEYS[name]
    return from_arrays(
        np.concatenate([batch[b"data"] for batch in train]).reshape(-1, 3, 32, 32),
        np.concatenate([batch[label_key] for batch in train]),
        test[b"data"].reshape(-1, 3, 32, 32),
        np.array(test[label_key]),
        class_names=[label.decode() for label in meta[names_key]],
        name=name,
        layout="NCHW",
    )


def _check_files(name: str, folder: Path) -> None:
    if not folder.is_dir():
        raise DataNotFound(
            f"there is no folder {folder}: run 'scommer data get {name}', "
            f"or set --data or SCOMMER_DATA to the folder that contains {folder.name}"
        )
    again = f"delete {folder} and run 'scommer data get {name}'"
    for file, expected in MD5[name].items():
        path = folder / file
        if not path.is_file():
            raise UsageError(f"there is no file {path}: {again}")
        try:
            found = md5_of(path)
        except OSError as error:
            raise UsageError(f"cannot read {path} ({error.strerror}): {again}") from error
        if found != expected:
            raise UsageError(f"{path} is damaged (md5 {found}, expected {expected}): {again}")


def read_pickle(path: Path) -> dict[Any, Any]:
    """Return a pickled dict whose values are plain values or arrays of numbers; refuse anything else."""
    try:
        with path.open("rb") as file:
            content = _Unpickler(file, encoding="bytes").load()
        if not isinstance(content, dict):
            raise pickle.UnpicklingError(f"it contains a {type(content).__name__}, expected a dict")
        return {key: value.array if isinstance(value, _Array) else value for key, value in content.items()}
    except Exception as error:  # a damaged or hostile pickle may raise anything
        reason = " ".join(str(error).split()) or type(error).__name__  # on one line
        raise UsageError(f"cannot read {path} as a CIFAR file ({reason}): replace it with the official file") from error


# The stand-ins below replace NumPy's own functions, which would also build object arrays, and which NumPy has moved
# and deprecated since these files were made. Both are classes with a __setstate__, so that a pickle's BUILD
# instruction cannot change them or their instances in any other way.


class _DType:
    """Stands in for numpy.dtype."""

    dtype: np.dtype[Any]

    def __init__(self, code: bytes | str, *_: object) -> None:
        if _text(code) not in NUMERIC_DTYPES:
            raise pickle.UnpicklingError(f"it contains an array of dtype {code!r}, expected numbers")
        self.dtype = np.dtype(_text(code))

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, order, subarray, names, fields, *_ = state
        if (subarray, names, fields) != (None, None, None):
            raise pickle.UnpicklingError("it contains a structured array")
        self.dtype = self.dtype.newbyteorder(_text(order))


class _Array:
    """Stands in for numpy.ndarray, and for the function by which pickles create an empty one."""

    array: np.ndarray[Any, Any]

    def __init__(self, *_: object) -> None:
        pass  # the content comes with __setstate__

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, kind, fortran, raw = state
        if not isinstance(kind, _DType) or not isinstance(raw, bytes):
            raise pickle.UnpicklingError("it contains an array, but not of numbers")
        flat = np.frombuffer(raw, kind.dtype)
        self.array = flat.reshape(shape, order="F" if fortran else "C").copy()


def _text(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value  # bytes in pickles of Python 2


STAND_INS: dict[tuple[str, str], type] = {
    ("numpy", "dtype"): _DType,
    ("numpy", "ndarray"): _Array,
    ("numpy.core.multiarray", "_reconstruct"): _Array,
    ("numpy._core.multiarray", "_reconstruct"): _Array,  # its name since NumPy 2
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> type:
        try:
            return STAND_INS[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"it refers to {f'{module}.{name}'!r}") from None
