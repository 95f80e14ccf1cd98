"""The kernels that compute one element's matrix, whole or some of its rows; every strategy calls these."""

from __future__ import annotations

import numpy as np

from armillary.kernels import loop

from .elements import ELASTIC, MASS, STIFFNESS


@loop(error_model="numpy")
def geometry(work, e, gradient, volume):
    """Computes gradients [q, a, i] and weights times volume [q] of element e, which are zero where it is flat."""
    points, cells = work.points, work.cells
    d, nodes = points.shape[0], cells.shape[1]
    if work.affine:
        i0, i1, i2 = cells[e, 0], cells[e, 1], cells[e, 2]
        if d == 2:
            ax, ay = points[0, i1] - points[0, i0], points[1, i1] - points[1, i0]
            bx, by = points[0, i2] - points[0, i0], points[1, i2] - points[1, i0]
            det = ax * by - ay * bx
            inv = 1.0 / det if det != 0.0 else 0.0
            gradient[0, 1, 0], gradient[0, 1, 1] = by * inv, -bx * inv
            gradient[0, 2, 0], gradient[0, 2, 1] = -ay * inv, ax * inv
            gradient[0, 0, 0] = -(gradient[0, 1, 0] + gradient[0, 2, 0])
            gradient[0, 0, 1] = -(gradient[0, 1, 1] + gradient[0, 2, 1])
            volume[0] = 0.5 * abs(det)
            return
        i3 = cells[e, 3]
        x, y, z = points[0, i0], points[1, i0], points[2, i0]
        ax, ay, az = points[0, i1] - x, points[1, i1] - y, points[2, i1] - z
        bx, by, bz = points[0, i2] - x, points[1, i2] - y, points[2, i2] - z
        cx, cy, cz = points[0, i3] - x, points[1, i3] - y, points[2, i3] - z
        px, py, pz = by * cz - bz * cy, bz * cx - bx * cz, bx * cy - by * cx
        qx, qy, qz = cy * az - cz * ay, cz * ax - cx * az, cx * ay - cy * ax
        rx, ry, rz = ay * bz - az * by, az * bx - ax * bz, ax * by - ay * bx
        det = ax * px + ay * py + az * pz
        inv = 1.0 / det if det != 0.0 else 0.0
        gradient[0, 1, 0], gradient[0, 1, 1], gradient[0, 1, 2] = px * inv, py * inv, pz * inv
        gradient[0, 2, 0], gradient[0, 2, 1], gradient[0, 2, 2] = qx * inv, qy * inv, qz * inv
        gradient[0, 3, 0], gradient[0, 3, 1], gradient[0, 3, 2] = rx * inv, ry * inv, rz * inv
        gradient[0, 0, 0] = -(px + qx + rx) * inv
        gradient[0, 0, 1] = -(py + qy + ry) * inv
        gradient[0, 0, 2] = -(pz + qz + rz) * inv
        volume[0] = abs(det) / 6.0
        return
    slope = work.slope
    for q in range(slope.shape[0]):
        j00 = j01 = j02 = j10 = j11 = j12 = j20 = j21 = j22 = 0.0
        for a in range(nodes):
            n = cells[e, a]
            x, y = points[0, n], points[1, n]
            s0, s1 = slope[q, a, 0], slope[q, a, 1]
            j00 += x * s0
            j01 += x * s1
            j10 += y * s0
            j11 += y * s1
            if d == 3:
                z, s2 = points[2, n], slope[q, a, 2]
                j02 += x * s2
                j12 += y * s2
                j20 += z * s0
                j21 += z * s1
                j22 += z * s2
        if d == 2:
            det = j00 * j11 - j01 * j10
            inv = 1.0 / det if det != 0.0 else 0.0
            for a in range(nodes):
                s0, s1 = slope[q, a, 0], slope[q, a, 1]
                gradient[q, a, 0] = (s0 * j11 - s1 * j10) * inv
                gradient[q, a, 1] = (s1 * j00 - s0 * j01) * inv
        else:
            c00, c01, c02 = j11 * j22 - j12 * j21, j12 * j20 - j10 * j22, j10 * j21 - j11 * j20
            c10, c11, c12 = j02 * j21 - j01 * j22, j00 * j22 - j02 * j20, j01 * j20 - j00 * j21
            c20, c21, c22 = j01 * j12 - j02 * j11, j02 * j10 - j00 * j12, j00 * j11 - j01 * j10
            det = j00 * c00 + j01 * c01 + j02 * c02
            inv = 1.0 / det if det != 0.0 else 0.0
            for a in range(nodes):
                s0, s1, s2 = slope[q, a, 0], slope[q, a, 1], slope[q, a, 2]
                gradient[q, a, 0] = (c00 * s0 + c01 * s1 + c02 * s2) * inv
                gradient[q, a, 1] = (c10 * s0 + c11 * s1 + c12 * s2) * inv
                gradient[q, a, 2] = (c20 * s0 + c21 * s1 + c22 * s2) * inv
        volume[q] = abs(det) * work.weight[q]


@loop(error_model="numpy")
def rows(work, e, first, last, gradient, volume, out):
    """Computes the rows of the local nodes first to last of element e's matrix into out[s, s]; `gradient` and `volume` are scratch."""
    nodes, d, m = work.cells.shape[1], work.points.shape[0], work.dofs
    at = e if work.coefficients.shape[1] > 1 else 0
    c0, c1 = work.coefficients[0, at], work.coefficients[1, at]
    if work.stored.shape[1] > 0:
        for r in range(first * m, last * m):
            for c in range(nodes * m):
                out[r, c] = c0 * work.stored[0, e, r, c] + c1 * work.stored[1, e, r, c]
        return
    geometry(work, e, gradient, volume)
    if work.form == ELASTIC:
        for r in range(first * m, last * m):
            for c in range(nodes * m):
                out[r, c] = 0.0
        for q in range(work.slope.shape[0]):
            lam, mu = c0 * volume[q], c1 * volume[q]
            for a in range(first, last):
                for b in range(nodes):
                    dot = 0.0
                    for i in range(d):
                        dot += gradient[q, a, i] * gradient[q, b, i]
                    for i in range(d):
                        for j in range(d):
                            out[a * m + i, b * m + j] += (
                                lam * gradient[q, a, i] * gradient[q, b, j] + mu * gradient[q, a, j] * gradient[q, b, i]
                            )
                        out[a * m + i, b * m + i] += mu * dot
        return
    if work.affine:
        scaled, mass = c0 * volume[0], c1 * volume[0]
        for a in range(first, last):
            g0, g1 = gradient[0, a, 0] * scaled, gradient[0, a, 1] * scaled
            if d == 3:
                g2 = gradient[0, a, 2] * scaled
                for b in range(nodes):
                    out[a, b] = g0 * gradient[0, b, 0] + g1 * gradient[0, b, 1] + g2 * gradient[0, b, 2]
            else:
                for b in range(nodes):
                    out[a, b] = g0 * gradient[0, b, 0] + g1 * gradient[0, b, 1]
            if work.form & MASS:
                for b in range(nodes):
                    out[a, b] += mass * work.mass[a, b]
        return
    for a in range(first, last):
        for b in range(nodes):
            out[a, b] = 0.0
    for q in range(work.slope.shape[0]):
        scaled, mass = c0 * volume[q], c1 * volume[q]
        for a in range(first, last):
            if work.form & STIFFNESS:
                for b in range(nodes):
                    dot = 0.0
                    for i in range(d):
                        dot += gradient[q, a, i] * gradient[q, b, i]
                    out[a, b] += scaled * dot
            if work.form & MASS:
                for b in range(nodes):
                    out[a, b] += mass * work.shape[q, a] * work.shape[q, b]


@loop
def scratch(work):
    """Allocates gradient, volume and matrix for `rows`."""
    nodes, d, q = work.cells.shape[1], work.points.shape[0], work.slope.shape[0]
    return np.empty((q, nodes, d)), np.empty(q), np.empty((nodes * work.dofs, nodes * work.dofs))


@loop(error_model="numpy")
def store(work, out):
    """Computes all element matrices into out[elements, s, s]."""
    gradient, volume, matrix = scratch(work)
    for e in range(work.cells.shape[0]):
        rows(work, e, 0, work.cells.shape[1], gradient, volume, matrix)
        out[e] = matrix
