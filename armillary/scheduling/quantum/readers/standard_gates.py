"""The gates of `qelib1.inc` and `stdgates.inc`: how many angles and qubits each takes, and what those on three or more qubits are made of.

Gates on one and two qubits are kept as they are; the others are expanded into them.
"""

from __future__ import annotations

#: Name to (angles, qubits).
GATES: dict[str, tuple[int, int]] = {
    **dict.fromkeys(("id", "x", "y", "z", "h", "s", "sdg", "t", "tdg", "sx", "sxdg"), (0, 1)),
    **dict.fromkeys(("u0", "u1", "p", "phase", "rx", "ry", "rz"), (1, 1)),
    "u2": (2, 1),
    **dict.fromkeys(("u3", "u", "U"), (3, 1)),
    **dict.fromkeys(("cx", "CX", "cy", "cz", "ch", "swap", "csx"), (0, 2)),
    **dict.fromkeys(("crx", "cry", "crz", "cu1", "cp", "cphase", "rxx", "rzz", "ryy"), (1, 2)),
    "cu3": (3, 2),
    "cu": (4, 2),
}

#: Gates on three and more qubits as definitions in OpenQASM, in the order in which they may use each other.
DEFINITIONS = """
gate ccx a,b,c { h c; cx b,c; tdg c; cx a,c; t c; cx b,c; tdg c; cx a,c; t b; t c; h c; cx a,b; t a; tdg b; cx a,b; }
gate cswap a,b,c { cx c,b; ccx a,b,c; cx c,b; }
gate rccx a,b,c { u2(0,pi) c; u1(pi/4) c; cx b,c; u1(-pi/4) c; cx a,c; u1(pi/4) c; cx b,c; u1(-pi/4) c; u2(0,pi) c; }
gate rc3x a,b,c,d {
  u2(0,pi) d; u1(pi/4) d; cx c,d; u1(-pi/4) d; u2(0,pi) d; cx a,d; u1(pi/4) d; cx b,d; u1(-pi/4) d; cx a,d; u1(pi/4) d; cx b,d;
  u1(-pi/4) d; u2(0,pi) d; u1(pi/4) d; cx c,d; u1(-pi/4) d; u2(0,pi) d;
}
gate c3x a,b,c,d {
  h d; p(pi/8) a; p(pi/8) b; p(pi/8) c; p(pi/8) d; cx a,b; p(-pi/8) b; cx a,b; cx b,c; p(-pi/8) c; cx a,c; p(pi/8) c; cx b,c;
  p(-pi/8) c; cx a,c; cx c,d; p(-pi/8) d; cx b,d; p(pi/8) d; cx c,d; p(-pi/8) d; cx a,d; p(pi/8) d; cx c,d; p(-pi/8) d; cx b,d;
  p(pi/8) d; cx c,d; p(-pi/8) d; cx a,d; h d;
}
gate c3sqrtx a,b,c,d {
  h d; cu1(pi/8) a,d; h d; cx a,b; h d; cu1(-pi/8) b,d; h d; cx a,b; h d; cu1(pi/8) b,d; h d; cx b,c; h d; cu1(-pi/8) c,d; h d;
  cx a,c; h d; cu1(pi/8) c,d; h d; cx b,c; h d; cu1(-pi/8) c,d; h d; cx a,c; h d; cu1(pi/8) c,d; h d;
}
gate c4x a,b,c,d,e {
  h e; cu1(pi/2) d,e; h e; c3x a,b,c,d; h e; cu1(-pi/2) d,e; h e; c3x a,b,c,d; c3sqrtx a,b,c,e;
}
"""
