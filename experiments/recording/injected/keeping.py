"""Keeps files that a rerun of a recorded script is about to overwrite or remove, so `samestep diff` can put them back.

A rerun does everything that the script does in its first steps, but from changed weights, so its checkpoint must not replace
the user's. Python announces the files that it opens, renames and removes (audit events, PEP 578). Files that compiled code
opens are found by following the functions that open them. Files that a program other than Python writes are not noticed.

`samestep record` copies this file next to `sitecustomize.py`, which runs it first, so it must run in any Python.
"""

import contextlib
import errno
import fcntl
import functools
import glob
import importlib
import json
import os
import shutil
import stat
import threading

MOST_BYTES = 2**30
"""A larger file that is opened to be changed in place, such as a data set of `numpy.memmap`, is not copied."""
_CHANGES = os.O_WRONLY | os.O_RDWR | os.O_TRUNC
_CACHE = os.sep + "__pycache__" + os.sep
_ALSO_WRITTEN = "-wal", "-journal", "-shm"
_FILE, _HDF5, _TREE, _PREFIX, _EVENTS = "file", "hdf5", "tree", "prefix", "events"
_IO = "tensorflow.python.lib.io._pywrap_file_io"
_WRITERS = (
    ("torch._C", "PyTorchFileWriter.__init__", 1, "file_name", _FILE),
    ("torch.jit", "save", 1, "f", _FILE),
    ("torch.jit", "RecursiveScriptModule.save", 1, "f", _FILE),
    ("safetensors", "serialize_file", 1, "filename", _FILE),
    ("h5py", "File.__init__", 1, "name", _HDF5),
    (_IO, "WritableFile", 0, "filename", _FILE),
    (_IO, "CreateDir", 0, "dirname", _FILE),
    (_IO, "RecursivelyCreateDir", 0, "dirname", _FILE),
    (_IO, "DeleteFile", 0, "filename", _FILE),
    (_IO, "DeleteRecursively", 0, "dirname", _TREE),
    (_IO, "RenameFile", 0, "src", _TREE),
    (_IO, "RenameFile", 1, "target", _FILE),
    (_IO, "CopyFile", 1, "target", _FILE),
    ("tensorflow._api.v2.io", "write_file", 0, "filename", _FILE),
    ("tensorflow.python.lib.io.tf_record", "TFRecordWriter.__init__", 1, "path", _FILE),
    ("tensorflow.python.ops.gen_summary_ops", "create_summary_file_writer", 1, "logdir", _EVENTS),
    ("tensorflow.python.checkpoint.checkpoint", "TrackableSaver.save", 1, "file_prefix", _PREFIX),
    ("tensorflow.python.saved_model.save", "save_and_return_nodes", 1, "export_dir", _TREE),
)
"""The functions whose compiled code opens files: module, name, index and keyword of the path, and the kind of path."""


class Keeper:
    """Copies each file before this process first changes it. All processes of a rerun share one list.

    Attributes:
        modules: The modules to follow once they are imported.
    """

    modules = tuple({each[0].partition(".")[0] for each in _WRITERS})

    def __init__(self, written, ignored, note):
        """Starts with the files that other processes have kept.

        Args:
            written: The path of the existing list, with a line for each file. Copies are put next to it.
            ignored: Folders in which the recorder writes.
            note: Tells the user why a rerun could not continue.
        """
        self._list, self._folder, self._note = written, os.path.dirname(written), note
        self._ignored = (*(os.path.realpath(each) + os.sep for each in ignored), "/proc/", "/sys/")
        self._copies = os.path.realpath(self._folder)
        self._seen, self._read = {}, 0
        self._renew()
        os.register_at_fork(after_in_child=self._renew)

    def _renew(self):
        self._lock, self._is_busy = threading.RLock(), False

    def listen(self, event, arguments):
        """Handles an audit event, which announces what Python is about to do.

        Args:
            event: The name of an audit event.
            arguments: Its arguments.

        Raises:
            OSError: A file cannot be copied, so it must not be overwritten.
        """
        if event == "open":
            path, _, flags = arguments
            if isinstance(flags, int) and flags & _CHANGES:
                self.keep(path, is_update=not flags & (os.O_TRUNC | os.O_APPEND) and bool(flags & os.O_RDWR))
        elif event == "os.rename":
            source, target, source_folder, target_folder = arguments
            self.keep_tree(_below(source, source_folder), _below(target, target_folder))
        elif event in ("os.remove", "os.rmdir", "os.mkdir"):
            self.keep(_below(arguments[0], arguments[-1]), is_link=True)
        elif event in ("os.symlink", "os.link"):
            self.keep(_below(arguments[1], arguments[-1]), is_link=True)
        elif event in ("os.chmod", "os.utime"):
            self.keep(_below(arguments[0], arguments[-1]))
        elif event == "os.truncate":
            self.keep(arguments[0])
        elif event == "sqlite3.connect" and isinstance(arguments[0], (str, bytes, os.PathLike)):
            path = os.fsdecode(arguments[0])
            path = path[5:].partition("?")[0] if path.startswith("file:") else path
            for each in ("", *_ALSO_WRITTEN):
                self.keep(path + each, is_update=True)

    def keep(self, path, is_link=False, is_update=False, is_made=False):
        """Copies the file at a path unless it was copied before; notes the path if no file is there.

        Args:
            path: The path, or the descriptor of an open file.
            is_link: Whether the link itself is meant instead of its target.
            is_update: Whether the file is opened to change a part of it.
            is_made: Whether compiled code has just made the file, under a name that was not known before.
        """
        if not isinstance(path, (str, bytes, os.PathLike)):
            return
        with self._lock:
            if self._is_busy:
                return
            self._is_busy = True
            try:
                path = os.path.abspath(os.fsdecode(path))
                folder, name = os.path.split(path)
                path = os.path.join(os.path.realpath(folder), name) if is_link else os.path.realpath(path)
                if (path + os.sep).startswith(self._copies + os.sep):
                    raise OSError(errno.EBUSY, "the copies of other files are there")
                if not (path in self._seen or path.startswith(self._ignored) or _CACHE in path):
                    self._keep(path, is_update, is_made)
            except OSError as error:
                self._note(f"a rerun was about to change {path}, which cannot be copied first: {error.strerror}")
                raise
            finally:
                self._is_busy = False

    def keep_tree(self, path, target=None):
        """Copies a path and everything below it, before it is renamed or removed.

        Args:
            path: The path.
            target: The new name; None if it is removed.
        """
        if not isinstance(path, (str, bytes, os.PathLike)):
            return
        path = os.fsdecode(path)
        below = [path]
        if os.path.isdir(path) and not os.path.islink(path):
            below += [os.path.join(place, name) for place, *names in os.walk(path) for each in names for name in each]
        for each in below:
            self.keep(each, is_link=True)
            if target is not None:
                self.keep(os.fsdecode(target) + each[len(path) :], is_link=True)

    def _keep(self, path, is_update, is_made):
        with open(self._list, "r+b", buffering=0) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            try:
                file.seek(self._read)
                self._seen.update((entry["path"], entry) for entry in map(json.loads, file.read().splitlines()))
                if path not in self._seen:
                    found = {"kind": "new"} if is_made else self._copied(path, is_update)
                    entry, end = dict(found, path=path), file.tell()
                    line = json.dumps(entry).encode() + b"\n"
                    if file.write(line) < len(line):  # other processes must not read half of a line
                        file.truncate(end)
                        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                    self._seen[path] = entry
                self._read = file.tell()
            finally:
                fcntl.flock(file, fcntl.LOCK_UN)  # a process that was forked meanwhile has it open as well

    def _copied(self, path, is_update):
        """Returns an entry for what is at a path, and copies a file."""
        try:
            status = os.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            return {"kind": "new"}
        if stat.S_ISLNK(status.st_mode):
            return {"kind": "link", "target": os.readlink(path)}
        if stat.S_ISDIR(status.st_mode):
            return {"kind": "folder", "mode": stat.S_IMODE(status.st_mode)}
        if not stat.S_ISREG(status.st_mode) or (is_update and status.st_size > MOST_BYTES):
            return {"kind": "left"}
        linked = {"inode": [status.st_dev, status.st_ino]} if status.st_nlink > 1 else {}
        for each in self._seen.values() if linked else ():
            if each.get("inode") == linked["inode"]:  # it may have been changed under its other name
                return dict(each)
        copy = os.path.join(self._folder, str(len(self._seen)))
        shutil.copy2(path, copy)
        with contextlib.suppress(OSError):  # only root may give files away
            os.chown(copy, status.st_uid, status.st_gid)
        return dict(linked, kind="file", copy=os.path.basename(copy))

    def follow(self, module):
        """Follows the functions of a module that was just imported.

        Args:
            module: The name of any module.
        """
        for name, place, index, keyword, kind in _WRITERS:
            if name.partition(".")[0] != module:
                continue
            with contextlib.suppress(ImportError, AttributeError):  # another version has it elsewhere
                holder = importlib.import_module(name)
                *outer, last = place.split(".")
                for each in outer:
                    holder = getattr(holder, each)
                setattr(holder, last, self._preceded(getattr(holder, last), index, keyword, kind))

    def _preceded(self, function, index, keyword, kind):
        def kept(*arguments, **keywords):
            path = arguments[index] if len(arguments) > index else keywords.get(keyword)
            path = getattr(path, "numpy", lambda: path)()  # an op of TensorFlow is given a tensor
            mode = arguments[index + 1] if len(arguments) > index + 1 else keywords.get("mode", "r")
            if kind != _HDF5:
                {_TREE: self.keep_tree, _PREFIX: self._keep_prefix}.get(kind, self._keep_file)(path)
            elif mode != "r":
                self.keep(path, is_update=mode in ("r+", "a"))
            is_known = kind == _EVENTS and isinstance(path, (str, bytes))
            events = f"{glob.escape(os.fsdecode(path))}/events.out.tfevents.*.{os.getpid()}.*" if is_known else ""
            there = glob.glob(events)
            result = function(*arguments, **keywords)
            for made in set(glob.glob(events)).difference(there):
                self.keep(made, is_made=True)
            return result

        return functools.wraps(function)(kept)

    def _keep_prefix(self, prefix):
        """Copies the files of a checkpoint of TensorFlow, or notes those that are about to be made."""
        prefix = os.path.abspath(os.fsdecode(prefix))
        for path in (prefix + ".index", prefix + ".data-00000-of-00001", *glob.glob(glob.escape(prefix) + ".*")):
            self._keep_file(path)

    def _keep_file(self, path):
        """Copies the file at a path or notes the path, and notes the folders around it that do not exist yet."""
        while isinstance(path, (str, bytes, os.PathLike)) and path:
            self.keep(path)
            path = os.path.dirname(os.path.abspath(os.fsdecode(path)))
            path = None if os.path.lexists(path) else path


def _below(path, folder):
    """Returns an absolute path for one that is relative to an open folder."""
    if isinstance(folder, int) and folder >= 0 and isinstance(path, (str, bytes, os.PathLike)):
        return os.path.join(os.readlink(f"/proc/self/fd/{folder}"), os.fsdecode(path))
    return path
