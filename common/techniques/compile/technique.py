"""Compilation as a technique."""

from samestep.common.techniques.compile.flag import CompileFlags
from samestep.common.techniques.technique import Technique

COMPILE = Technique(flags=CompileFlags, replaces_code=True)
