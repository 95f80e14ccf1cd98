"""The OpenCL texts of the built-in kernels; the compiled loops beside them compute the same in the same order."""

SOFTMAX = """
__kernel void softmax(__global float* s, const int m) {
    __global float* row = s + get_global_id(0) * m;
    float most = row[0], sum = 0;
    for (int j = 1; j < m; j++) most = fmax(most, row[j]);
    for (int j = 0; j < m; j++) { row[j] = exp(row[j] - most); sum += row[j]; }
    for (int j = 0; j < m; j++) row[j] /= sum;
}
"""
SOFTMAX_BACK = """
__kernel void softmax_back(__global const float* p, __global float* d, const int m) {
    const int i = get_global_id(0) * m;
    float sum = 0;
    for (int j = 0; j < m; j++) sum += p[i + j] * d[i + j];
    for (int j = 0; j < m; j++) d[i + j] = p[i + j] * (d[i + j] - sum);
}
"""
POTRF = """
__kernel void potrf(__global double* a, const int n) {
    for (int j = 0; j < n; j++) {
        double d = a[j * n + j];
        for (int k = 0; k < j; k++) d -= a[j * n + k] * a[j * n + k];
        d = sqrt(d);
        a[j * n + j] = d;
        for (int i = j + 1; i < n; i++) {
            double s = a[i * n + j];
            for (int k = 0; k < j; k++) s -= a[i * n + k] * a[j * n + k];
            a[i * n + j] = s / d;
            a[j * n + i] = 0;
        }
    }
}
"""
TRSM = """
__kernel void trsm(__global const double* l, __global double* b, const int n) {
    const int i = get_global_id(0);
    for (int j = 0; j < n; j++) {
        double s = b[i * n + j];
        for (int k = 0; k < j; k++) s -= b[i * n + k] * l[j * n + k];
        b[i * n + j] = s / l[j * n + j];
    }
}
"""
SWEEP = """
__kernel void sweep(__global double* u, const int width, const int row, const int column, const int tile) {
    for (int i = row; i < row + tile; i++)
        for (int j = column; j < column + tile; j++)
            u[i * width + j] = 0.25 * (u[(i - 1) * width + j] + u[i * width + j - 1] + u[i * width + j + 1] + u[(i + 1) * width + j]);
}
"""
FORCES = """
__kernel void forces(__global const double* p, __global const double* q, __global double* f, const int n) {
    const int i = get_global_id(0);
    const double x = p[3 * i], y = p[3 * i + 1], z = p[3 * i + 2];
    double fx = f[3 * i], fy = f[3 * i + 1], fz = f[3 * i + 2];
    for (int j = 0; j < n; j++) {
        const double dx = q[3 * j] - x, dy = q[3 * j + 1] - y, dz = q[3 * j + 2] - z;
        const double r = dx * dx + dy * dy + dz * dz + 1e-4;
        const double w = 1.0 / (r * sqrt(r));
        fx += w * dx; fy += w * dy; fz += w * dz;
    }
    f[3 * i] = fx; f[3 * i + 1] = fy; f[3 * i + 2] = fz;
}
"""
UPDATE = """
__kernel void update(__global double* p, __global double* v, __global double* f, const double step) {
    const int i = get_global_id(0);
    v[i] += step * f[i];
    p[i] += step * v[i];
    f[i] = 0;
}
"""
RELAX = """
__kernel void relax(__global double* a, const int rounds) {
    const int i = get_global_id(0);
    double x = a[i];
    for (int k = 0; k < rounds; k++) x = x * 0.999 + 0.001;
    a[i] = x;
}
"""
NOTHING = """
__kernel void nothing(__global double* a) { }
"""
