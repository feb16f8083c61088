/* The compiled kernels of `multigrid`, for tensors on the CPU: plain C, called through ctypes by `multigrid_compiled`.

   A *plane* is one channel of one grid: a pointer to its first point, rows of `stride` numbers with at least one zero
   after the last column, and zeros above, below and in front, so that every neighbour is a shift of the plane and
   whole blocks of rows are a single loop. The stride is even, so that halving a row never crosses into the next.

   Images are shifted and scaled to about [-1/2, 1/2]. Coarse grids, which only ever hold corrections, are float; the
   finest is float or double (`multigrid_finest.h`), as the tolerance asks.

   NaN and infinity keep their meaning: compile without -ffast-math. */

#include <float.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* The method; `multigrid_torch` has the same numbers and says why. */
#define PRE 1.3f
#define POST 0.81f
#define COARSE_DAMPING 0.9f
#define OVERCORRECTION 1.05f
#define VISIT_ONCE 32
#define SAFETY 2.6
#define FIRST_RATE 0.3
#define LEAST_RATE 0.1
#define STEP_SHARE 0.3
#define ROUNDING_LIMIT 5.0
#define DIVERGED 1e6 /* a correction of so many times the range of the image */
enum { MISSED = -1, NOTHING_KEPT = -2, NOT_FINITE = -3, NO_MEMORY = -4 }; /* in the place of an error estimate */

/* Up to this share of removed pixels, and this dip, sweeps over them are cheaper than a cycle over all pixels. */
#define SCATTERED_SHARE 0.17
#define SCATTERED_DIP 0.95f
#define MOST_SWEEPS 200

#define LANES 16          /* rows of large images are padded to a multiple of this: they begin with a cache line */
#define BLOCK_VALUES 2048 /* numbers handled at once, so that what one pass writes is in cache when the next reads it */
#define COARSEST 16       /* grids of at most this height and width are solved by factorisation */
#define SMALL 64          /* of images up to this height and width, grids of half that size */
#define MOST_GRIDS 32
enum { CENTRE, EAST, SOUTH, SOUTHEAST, SOUTHWEST, INVERSE, DIP, OPERATOR }; /* the planes of a coarse operator */

/* A version of each loop for what the processor can do, chosen when the library is loaded. */
#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__) && __GNUC__ >= 12
#define KERNEL __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default"))) static
#else
#define KERNEL static
#endif
#if defined(_WIN32)
#define EXPORT __declspec(dllexport)
#else
#define EXPORT __attribute__((visibility("default")))
#endif

typedef ptrdiff_t Index;

static Index least(Index a, Index b) { return a < b ? a : b; }
static Index most(Index a, Index b) { return a > b ? a : b; }
static float larger(float a, float b) { return a > b ? a : b; }

typedef struct {
    Index h, w, stride, plane; /* height, width, length of a row, distance between planes */
    float *x, *y, *b;          /* solution, smoothed solution, right-hand side: one plane per channel each */
    float *a;                  /* the operator, see CENTRE and so on */
    float *weight;             /* how much of a point is known, for the first guess */
} Grid;

typedef struct {
    Index channels, grids, block; /* rows handled at once, an even number */
    Grid grid[MOST_GRIDS];        /* of the finest, x, y, b and a are not used */
    void *memory, *wide[2];       /* wide: solution and smoothed solution of the finest grid as float and as double */
    float *gain, *dip, *diagonal, *removed; /* of the finest grid: removed / diagonal, dip, diagonal + 4, removed */
    double *sums;                           /* blocks of rows, from here to `folded`; of `residual` one per channel */
    float *residual, *missed, *zeros, *changes, *corrections, *steps;
    float *scaled, *odd, *even, *folded; /* a block of stencils, by odd and even columns, after folding columns */
    Index block_size;
    double *band, *column; /* the factorised operator of the coarsest grid, and its unknowns */
    double *low, *high, *range; /* of each channel; of each column */
    int32_t *places; /* of scattered removed pixels */
    int visits[MOST_GRIDS];
} Workspace;

/* ---- Between grids: coarse point (Y, X) lies on fine point (2Y, 2X). ---- */

/* Restrict rows of `fine`, of which the first is the one above fine row 2·first; `sums` holds a row. */
KERNEL void restrict_rows(const float *fine, float *restrict out, Index rows, Index width, Index stride,
                          Index coarse_stride, float *restrict sums) {
    for (Index i = 0; i < rows; i++, out += coarse_stride) {
        const float *above = fine + 2 * i * stride, *here = above + stride, *below = here + stride;
        sums[0] = 0;
        for (Index j = 0; j < stride; j++) sums[j + 1] = here[j] + 0.5f * (above[j] + below[j]);
        sums[stride + 1] = sums[stride + 2] = 0;
        for (Index j = 0; j < width; j++) out[j] = sums[2 * j + 1] + 0.5f * (sums[2 * j] + sums[2 * j + 2]);
    }
}

/* Interpolate coarse rows to `rows` + 1 fine ones, of which the first is even. */
KERNEL void widen(const float *coarse, Index rows, Index width, Index stride, Index coarse_stride, float *restrict out) {
    for (Index i = 0; i <= rows; i += 2, coarse += coarse_stride) {
        float *restrict row = out + i * stride;
        for (Index j = 0; j < width; j++) {
            row[2 * j] = coarse[j];
            row[2 * j + 1] = 0.5f * (coarse[j] + coarse[j + 1]);
        }
        for (Index j = 2 * width; j < stride; j++) row[j] = 0;
    }
    for (Index i = 1; i < rows; i += 2) {
        float *row = out + i * stride, *above = row - stride, *below = row + stride;
        for (Index j = 0; j < stride; j++) row[j] = 0.5f * (above[j] + below[j]);
    }
}

static float largest_of(const float *values, Index n) {
    float largest = values[0];
    for (Index j = 0; j < n; j++)
        if (!(values[j] <= largest)) largest = values[j];
    return largest;
}

static void coarse_cycle(Workspace *w);
static void hand_down(Workspace *w, float *residual, float *rhs, const Grid *g, Index first, Index last);
static void set_up(Workspace *w);
static void guess_coarse(Workspace *w);
static char *finest_planes(Workspace *w, int wide);

#define REAL float
#define NAME(name) name##_float
#define EPSILON FLT_EPSILON
#include "multigrid_finest.h"
#undef REAL
#undef NAME
#undef EPSILON
#define REAL double
#define NAME(name) name##_double
#define EPSILON DBL_EPSILON
#include "multigrid_finest.h"

/* ---- Coarse grids. ---- */

/* Compute base + factor·share·(b - A x) for n numbers; in two loops, for lack of registers. */
KERNEL void sweep(const float *a, Index plane, const float *x, const float *b, const float *share, const float *base,
                  float factor, Index n, Index stride, float *restrict partial, float *restrict out) {
    const float *above = x - stride, *below = x + stride;
    const float *centre = a, *east = a + EAST * plane, *south = a + SOUTH * plane;
    for (Index j = 0; j < n; j++)
        partial[j] = b[j] - (centre[j] * x[j] + east[j] * x[j + 1] + east[j - 1] * x[j - 1] + south[j] * below[j]);
    const float *north = south - stride;
    const float *southeast = a + SOUTHEAST * plane, *southwest = a + SOUTHWEST * plane;
    const float *northwest = southeast - stride - 1, *northeast = southwest - stride + 1;
    for (Index j = 0; j < n; j++) {
        float rest = north[j] * above[j] + southeast[j] * below[j + 1] + southwest[j] * below[j - 1] +
                     northwest[j] * above[j - 1] + northeast[j] * above[j + 1];
        out[j] = base[j] + factor * share[j] * (partial[j] - rest);
    }
}

KERNEL void first_sweep(const float *inverse, const float *b, Index n, float *restrict y) {
    for (Index j = 0; j < n; j++) y[j] = COARSE_DAMPING * inverse[j] * b[j];
}

/* Run one damped Jacobi sweep on a coarse grid. */
static void relax(Workspace *w, const Grid *g, const float *x, float *out) {
    for (Index first = 0; first < g->h; first += w->block) {
        Index n = (least(first + w->block, g->h) - first) * g->stride, k = first * g->stride;
        for (Index c = 0; c < w->channels; c++) {
            const float *from = x + c * g->plane + k;
            sweep(g->a + k, g->plane, from, g->b + c * g->plane + k, g->a + INVERSE * g->plane + k, from, COARSE_DAMPING,
                  n, g->stride, w->missed, out + c * g->plane + k);
        }
    }
}

/* Restrict a block of residual rows, and keep its last row for the next block. */
static void hand_down(Workspace *w, float *residual, float *rhs, const Grid *g, Index first, Index last) {
    Index stride = g->stride, rows = w->block / 2;
    const Grid *next = g + 1;
    if (last == g->h) {
        memset(residual + (last - first + 1) * stride, 0, (size_t)(2 * stride) * sizeof(float));
        rows = next->h - first / 2;
    }
    restrict_rows(residual, rhs + first / 2 * next->stride, rows, next->w, stride, next->stride, w->changes);
    memmove(residual, residual + w->block * stride, (size_t)stride * sizeof(float));
}

/* Smooth on a coarse grid, from zero if it is fresh, and restrict the residual to the next. */
static void descend(Workspace *w, const Grid *g, int fresh) {
    Index stride = g->stride;
    if (fresh)
        for (Index c = 0; c < w->channels; c++)
            first_sweep(g->a + INVERSE * g->plane, g->b + c * g->plane, g->h * stride, g->y + c * g->plane);
    else
        relax(w, g, g->x, g->y);
    for (Index c = 0; c < w->channels; c++)
        memset(w->residual + c * w->block_size, 0, (size_t)stride * sizeof(float));
    for (Index first = 0; first < g->h; first += w->block) {
        Index last = least(first + w->block, g->h), k = first * stride;
        for (Index c = 0; c < w->channels; c++) { /* inside, so that the operator is still in cache */
            float *residual = w->residual + c * w->block_size;
            sweep(g->a + k, g->plane, g->y + c * g->plane + k, g->b + c * g->plane + k, g->a + DIP * g->plane + k,
                  w->zeros, 1, (last - first) * stride, stride, w->missed, residual + stride);
            hand_down(w, residual, g[1].b + c * g[1].plane, g, first, last);
        }
    }
}

/* Correct and smooth on a coarse grid. */
static void ascend(Workspace *w, const Grid *g) {
    for (Index c = 0; c < w->channels; c++)
        correct_float(w, g, g[1].x + c * g[1].plane, g->y + c * g->plane, g->a + DIP * g->plane, 0, g->h, 1, NULL);
    relax(w, g, g->y, g->x);
}

/* Factorise the coarsest operator as L·D·L' in double: its smallest eigenvalue can be near float's precision. */
static void factor(Workspace *w) {
    const Grid *g = w->grid + w->grids - 1;
    Index H = g->h, W = g->w, length = W + 2;
    memset(w->band, 0, (size_t)((H * W + W + 2) * length) * sizeof(double));
    for (Index i = 0; i < H; i++)
        for (Index j = 0; j < W; j++) {
            double *row = w->band + (i * W + j) * length;
            const float *a = g->a + i * g->stride + j;
            /* On a grid one or two pixels wide some of these share a place in the band: hence +=. */
            row[0] += a[CENTRE];
            if (j + 1 < W) row[1] += a[EAST * g->plane];
            if (i + 1 < H) row[W] += a[SOUTH * g->plane];
            if (i + 1 < H && j + 1 < W) row[W + 1] += a[SOUTHEAST * g->plane];
            if (i + 1 < H && j > 0) row[W - 1] += a[SOUTHWEST * g->plane];
        }
    for (Index k = 0; k < H * W; k++) {
        double *restrict row = w->band + k * length, pivot = row[0], whole = g->a[k / W * g->stride + k % W];
        double inverse = whole > 1e-5 && pivot > 1e-7 * whole ? 1 / pivot : 0; /* 0: no unknown there */
        for (Index p = 1; p < length; p++) {
            double share = row[p] * inverse, *restrict target = row + p * length;
            for (Index q = p; q < length; q++) target[q - p] -= share * row[q];
        }
        for (Index p = 1; p < length; p++) row[p] *= inverse;
        row[0] = inverse;
    }
}

static void solve_coarsest(Workspace *w) {
    const Grid *g = w->grid + w->grids - 1;
    Index W = g->w, n = g->h * W, length = W + 2, size = n + length;
    for (Index c = 0; c < w->channels; c++)
        for (Index k = 0; k < size; k++)
            w->column[c * size + k] = k < n ? g->b[c * g->plane + k / W * g->stride + k % W] : 0;
    /* Channels inside the rows: their chains of dependent operations overlap. */
    for (Index k = 0; k < n; k++) {
        const double *row = w->band + k * length;
        for (Index c = 0; c < w->channels; c++) {
            double *restrict tail = w->column + c * size + k, head = tail[0];
            for (Index p = 1; p < length; p++) tail[p] -= row[p] * head;
        }
    }
    for (Index c = 0; c < w->channels; c++) memset(w->column + c * size + n, 0, (size_t)length * sizeof(double));
    for (Index k = n - 1; k >= 0; k--) {
        const double *row = w->band + k * length;
        for (Index c = 0; c < w->channels; c++) {
            double *tail = w->column + c * size + k, total = tail[0] * row[0];
            for (Index p = 1; p < length; p++) total -= row[p] * tail[p];
            tail[0] = total;
            g->x[c * g->plane + k / W * g->stride + k % W] = (float)total;
        }
    }
}

/* Run one cycle from grid 1 on, without recursion: a W-cycle between large grids, a V-cycle below.

   V-cycles alone leave too much of the smooth error where nearly everything was removed. */
static void coarse_cycle(Workspace *w) {
    Index last = w->grids - 1, grid = 1;
    memset(w->visits, 0, sizeof w->visits);
    for (;;) {
        for (; grid < last; grid++) descend(w, w->grid + grid, w->visits[grid]++ == 0);
        solve_coarsest(w);
        while (grid > 1) {
            const Grid *g = w->grid + --grid;
            ascend(w, g);
            if (grid > 1 && w->visits[grid] == 1 && most(g->h, g->w) > VISIT_ONCE) break;
            w->visits[grid] = 0;
        }
        if (grid == 1 && (last == 1 || w->visits[1] == 0)) return;
    }
}

/* ---- Setting up, from what is kept alone. ---- */

/* Scale the stencils of n points of a coarse grid: each coefficient times the dips at both of its ends. */
KERNEL void scale(const float *a, Index plane, const float *dip, Index n, Index stride, float *restrict out, Index size) {
    const float *south = dip + stride;
    for (Index j = 0; j < n; j++) out[j] = a[j] * dip[j] * dip[j];
    for (Index j = 0; j < n; j++) out[EAST * size + j] = a[EAST * plane + j] * dip[j] * dip[j + 1];
    for (Index j = 0; j < n; j++) out[SOUTH * size + j] = a[SOUTH * plane + j] * dip[j] * south[j];
    for (Index j = 0; j < n; j++) out[SOUTHEAST * size + j] = a[SOUTHEAST * plane + j] * dip[j] * south[j + 1];
    for (Index j = 0; j < n; j++) out[SOUTHWEST * size + j] = a[SOUTHWEST * plane + j] * dip[j] * south[j - 1];
}

KERNEL void scale_finest(const float *diagonal, const float *dip, Index n, Index stride, float *restrict out, Index size) {
    const float *south = dip + stride;
    for (Index j = 0; j < n; j++) {
        out[j] = (diagonal[j] - 4) * dip[j] * dip[j];
        out[EAST * size + j] = -2 * dip[j] * dip[j + 1];
        out[SOUTH * size + j] = -2 * dip[j] * south[j];
        out[SOUTHEAST * size + j] = -dip[j] * south[j + 1];
        out[SOUTHWEST * size + j] = -dip[j] * south[j - 1];
    }
}

/* Separate odd columns, of which the first is the one before the row, from even ones: folding needs no strides then. */
KERNEL void split_columns(const float *fine, float *restrict odd, float *restrict even, Index n) {
    for (Index j = 0; j < n; j++) {
        even[j] = fine[2 * j];
        odd[j + 1] = fine[2 * j + 1];
    }
    odd[0] = 0;
}

/* Fold columns, the Galerkin product along the rows: column J gathers columns 2J - 1, 2J and 2J + 1.

   These are odd[J], even[J] and odd[J + 1]. */
KERNEL void fold_columns(const float *odd, const float *even, float *restrict out, Index n, Index size) {
    const float *c = even, *co = odd, *e = even + EAST * size, *eo = odd + EAST * size, *s = even + SOUTH * size,
                *so = odd + SOUTH * size, *r = even + SOUTHEAST * size, *ro = odd + SOUTHEAST * size,
                *l = even + SOUTHWEST * size, *lo = odd + SOUTHWEST * size;
    float *restrict south = out + SOUTH * size;
    for (Index j = 0; j < n; j++) out[j] = c[j] + 0.25f * (co[j] + co[j + 1]) + eo[j] + e[j];
    for (Index j = 0; j < n; j++) out[EAST * size + j] = 0.25f * co[j + 1] + 0.5f * (e[j] + eo[j + 1]);
    for (Index j = 0; j < n; j++)
        south[j] = s[j] + 0.25f * (so[j] + so[j + 1]) + 0.5f * (ro[j] + r[j] + l[j] + lo[j + 1]);
    for (Index j = 0; j < n; j++) out[SOUTHEAST * size + j] = 0.25f * so[j + 1] + 0.5f * (r[j] + ro[j + 1]);
    for (Index j = 0; j < n; j++) out[SOUTHWEST * size + j] = 0.25f * so[j] + 0.5f * (lo[j] + l[j]);
}

/* Fold rows: one coarse row of n from the three of `folded`, which are 2Y - 1, 2Y and 2Y + 1. */
KERNEL void fold_rows(const float *folded, Index size, Index n, float *restrict out, Index plane) {
    const float *above = folded, *here = folded + n, *below = folded + 2 * n;
    const float *above_s = above + SOUTH * size, *here_s = here + SOUTH * size, *below_s = below + SOUTH * size;
    for (Index j = 0; j < n; j++) out[j] = here[j] + 0.25f * (above[j] + below[j]) + above_s[j] + here_s[j];
    for (Index j = 0; j < n; j++) out[SOUTH * plane + j] = 0.25f * below[j] + 0.5f * (here_s[j] + below_s[j]);
    above += EAST * size, here += EAST * size, below += EAST * size;
    const float *above_r = folded + SOUTHEAST * size, *here_r = above_r + n, *below_r = here_r + n;
    const float *above_l = folded + SOUTHWEST * size, *here_l = above_l + n, *below_l = here_l + n;
    for (Index j = 0; j < n; j++) {
        float crossing = above_r[j] + here_r[j] + above_l[j + 1] + here_l[j + 1];
        out[EAST * plane + j] = here[j] + 0.25f * (above[j] + below[j]) + 0.5f * crossing;
    }
    for (Index j = 0; j < n; j++) out[SOUTHEAST * plane + j] = 0.25f * below[j] + 0.5f * (here_r[j] + below_r[j]);
    out[SOUTHWEST * plane] = 0;
    for (Index j = 1; j < n; j++) out[SOUTHWEST * plane + j] = 0.25f * below[j - 1] + 0.5f * (here_l[j] + below_l[j]);
}

/* Compute the operator of the next coarser grid. */
static void galerkin(Workspace *w, const Grid *g) {
    const Grid *next = g + 1;
    Index stride = g->stride, half = stride / 2, size = w->block_size;
    for (int p = 0; p < 5; p++) memset(w->folded + p * size, 0, (size_t)half * sizeof(float));
    for (Index first = 0; first < g->h; first += w->block) {
        Index last = least(first + w->block, g->h), n = (last - first) * stride, k = first * stride;
        if (g == w->grid)
            scale_finest(w->diagonal + k, w->dip + k, n, stride, w->scaled, size);
        else
            scale(g->a + k, g->plane, g->a + DIP * g->plane + k, n, stride, w->scaled, size);
        for (int p = 0; p < 5; p++) split_columns(w->scaled + p * size, w->odd + p * size, w->even + p * size, n / 2);
        fold_columns(w->odd, w->even, w->folded + half, n / 2, size);
        Index rows = w->block / 2;
        if (last == g->h) {
            rows = next->h - first / 2;
            for (int p = 0; p < 5; p++)
                memset(w->folded + p * size + half + n / 2, 0, (size_t)(2 * half + 1) * sizeof(float));
        }
        for (Index i = 0; i < rows; i++)
            fold_rows(w->folded + 2 * i * half, size, half, next->a + (first / 2 + i) * next->stride, next->plane);
        for (int p = 0; p < 5; p++)
            memmove(w->folded + p * size, w->folded + p * size + w->block * half, (size_t)half * sizeof(float));
    }
}

/* Compute the damping diagonal and the dip of a coarse grid.

   Positive couplings appear there, with which the plain diagonal makes Jacobi diverge: they are added to it. */
KERNEL void complete_operator(const float *a, Index plane, Index n, Index stride, float *restrict inverse,
                              float *restrict dip) {
    const float *east = a + EAST * plane, *south = a + SOUTH * plane, *north = south - stride;
    const float *southeast = a + SOUTHEAST * plane, *southwest = a + SOUTHWEST * plane;
    const float *northwest = southeast - stride - 1, *northeast = southwest - stride + 1;
    for (Index j = 0; j < n; j++) {
        inverse[j] = a[j] + larger(east[j], 0) + larger(east[j - 1], 0) + larger(south[j], 0) + larger(north[j], 0);
        dip[j] = a[j] + east[j] + east[j - 1] + south[j] + north[j];
    }
    for (Index j = 0; j < n; j++) {
        inverse[j] += larger(southeast[j], 0) + larger(southwest[j], 0) + larger(northwest[j], 0) + larger(northeast[j], 0);
        dip[j] += southeast[j] + southwest[j] + northwest[j] + northeast[j];
    }
    for (Index j = 0; j < n; j++) {
        int there = inverse[j] > 1e-5f;
        float one_by = 1 / (there ? inverse[j] : 1);
        dip[j] = there ? larger(1 - larger(dip[j], 0) * one_by, 0) : 0;
        inverse[j] = there ? one_by : 0;
    }
}

/* Set up the coarse grids. */
static void set_up(Workspace *w) {
    for (Index grid = 0; grid < w->grids - 1; grid++) {
        const Grid *g = w->grid + grid + 1;
        galerkin(w, g - 1);
        complete_operator(g->a, g->plane, g->h * g->stride, g->stride, g->a + INVERSE * g->plane, g->a + DIP * g->plane);
    }
    factor(w);
}

KERNEL void divide(float *restrict x, const float *weight, Index n) {
    for (Index j = 0; j < n; j++) x[j] /= weight[j] > 1 ? weight[j] : 1;
}

KERNEL void limit(float *restrict weight, Index n) {
    for (Index j = 0; j < n; j++) weight[j] = weight[j] < 1 ? weight[j] : 1;
}

/* Guess the unknown points of grid 1 and below from ever wider weighted means of the known ones ("pull-push"). */
static void guess_coarse(Workspace *w) {
    Index last = w->grids - 1;
    for (Index grid = 1; grid <= last; grid++) {
        const Grid *g = w->grid + grid;
        if (grid > 1) {
            const Grid *f = g - 1;
            restrict_rows(f->weight - f->stride, g->weight, g->h, g->w, f->stride, g->stride, w->changes);
            for (Index c = 0; c < w->channels; c++)
                restrict_rows(f->x + c * f->plane - f->stride, g->x + c * g->plane, g->h, g->w, f->stride, g->stride,
                              w->changes);
        }
        for (Index c = 0; c < w->channels; c++) divide(g->x + c * g->plane, g->weight, g->h * g->stride);
        limit(g->weight, g->h * g->stride);
    }
    const Grid *g = w->grid + last;
    for (Index c = 0; c < w->channels; c++) {
        double total = 0, weight = 0;
        for (Index k = 0; k < g->h * g->stride; k++) total += g->x[c * g->plane + k], weight += g->weight[k];
        for (Index i = 0; i < g->h; i++)
            for (Index k = i * g->stride; k < i * g->stride + g->w; k++)
                g->x[c * g->plane + k] += (1 - g->weight[k]) * (float)(total / weight);
    }
    for (Index grid = last - 1; grid > 0; grid--) {
        g = w->grid + grid;
        for (Index i = 0; i < g->h; i++)
            for (Index k = i * g->stride; k < i * g->stride + g->w; k++) g->weight[k] = 1 - g->weight[k];
        for (Index c = 0; c < w->channels; c++)
            correct_float(w, g, g[1].x + c * g[1].plane, g->x + c * g->plane, g->weight, 0, g->h, 1, NULL);
    }
}

/* ---- Memory. ---- */

/* Take `planes` planes of `size` numbers, whose first point, `front` numbers in, begins a cache line. */
static void *take(char *start, size_t *used, Index planes, Index size, Index front, size_t item) {
    size_t offset = *used + (size_t)front * item;
    *used += (size_t)(planes * size) * item;
    return start ? start + offset : NULL;
}

static Index rounded(Index count, Index unit) { return (count + unit - 1) / unit * unit; }

/* Lay out all buffers from `start` on, and return the bytes that they take; with NULL, only that. */
static size_t lay_out(Workspace *w, char *start) {
    size_t used = 0;
    Index C = w->channels, stride = w->grid->stride;
    for (Index i = 0; i < w->grids; i++) {
        Grid *g = w->grid + i;
        Index front = rounded(g->stride + 1, LANES);
        g->plane = rounded(front + (g->h + 2) * g->stride + 2, LANES);
        if (i == 0) {
            w->gain = take(start, &used, 1, g->plane, front, sizeof(float));
            w->dip = take(start, &used, 1, g->plane, front, sizeof(float));
            w->diagonal = take(start, &used, 1, g->plane, front, sizeof(float));
            w->removed = take(start, &used, 1, g->plane, front, sizeof(float));
            continue;
        }
        g->x = take(start, &used, C, g->plane, front, sizeof(float));
        g->y = take(start, &used, C, g->plane, front, sizeof(float));
        g->b = take(start, &used, C, g->plane, front, sizeof(float));
        g->a = take(start, &used, OPERATOR, g->plane, front, sizeof(float));
        g->weight = take(start, &used, 1, g->plane, front, sizeof(float));
    }
    const Grid *coarsest = w->grid + w->grids - 1;
    Index size = w->block_size = rounded((w->block + 4) * stride + LANES, LANES), unknowns = coarsest->h * coarsest->w;
    w->sums = take(start, &used, 1, size, 0, sizeof(double));
    w->residual = take(start, &used, C, size, 0, sizeof(float));
    float **blocks[] = {&w->missed, &w->zeros, &w->changes, &w->corrections, &w->steps};
    for (int i = 0; i < 5; i++) *blocks[i] = take(start, &used, 1, size, 0, sizeof(float));
    float **stencils[] = {&w->scaled, &w->odd, &w->even, &w->folded};
    for (int i = 0; i < 4; i++) *stencils[i] = take(start, &used, 5, size, 0, sizeof(float));
    Index length = coarsest->w + 2;
    w->band = take(start, &used, 1, rounded((unknowns + length) * length, LANES), 0, sizeof(double));
    w->column = take(start, &used, 1, rounded(C * (unknowns + length), LANES), 0, sizeof(double));
    w->low = take(start, &used, 1, rounded(C, LANES), 0, sizeof(double));
    w->high = take(start, &used, 1, rounded(C, LANES), 0, sizeof(double));
    w->range = take(start, &used, 2, stride, 0, sizeof(double));
    Index most_places = (Index)(SCATTERED_SHARE * (double)(w->grid->h * w->grid->w)) + 1;
    w->places = take(start, &used, 1, rounded(most_places, LANES), 0, sizeof(int32_t));
    return used;
}

static void *aligned_zeros(size_t bytes, void **memory) {
    *memory = calloc(bytes + 64, 1);
    return *memory ? (char *)*memory + (64 - (uintptr_t)*memory % 64) : NULL;
}

/* Return solution and smoothed solution of the finest grid, or NULL for want of memory; `wide`: of doubles. */
static char *finest_planes(Workspace *w, int wide) {
    size_t bytes = (size_t)(2 * w->channels * w->grid->plane) * (wide ? sizeof(double) : sizeof(float));
    if (!w->wide[wide] && !aligned_zeros(bytes, &w->wide[wide])) return NULL;
    char *start = (char *)w->wide[wide] + (64 - (uintptr_t)w->wide[wide] % 64);
    return start + (size_t)rounded(w->grid->stride + 1, LANES) * (wide ? sizeof(double) : sizeof(float));
}

EXPORT void twinlens_free(Workspace *w) {
    if (!w) return;
    free(w->wide[0]);
    free(w->wide[1]);
    free(w->memory);
    free(w);
}

/* Allocate the buffers for images of that shape; each thread needs its own. NULL for want of memory. */
EXPORT Workspace *twinlens_workspace(int64_t channels, int64_t height, int64_t width) {
    Workspace *w = calloc(1, sizeof(Workspace));
    if (!w) return NULL;
    Index largest = most(height, width);
    /* Factorising 16 × 16 unknowns would be most of the work for a small image. */
    Index enough = largest > SMALL ? COARSEST : COARSEST / 2, unit = largest > SMALL ? LANES : 2;
    w->channels = channels;
    for (Index h = height, wide = width;; h = h / 2 + 1, wide = wide / 2 + 1) {
        Grid *g = w->grid + w->grids++;
        g->h = h, g->w = wide, g->stride = rounded(wide + 1, unit);
        if (w->grids > 1 && most(h, wide) <= enough) break;
    }
    w->block = most(least(BLOCK_VALUES / w->grid->stride / 2 * 2, 8), 2);
    char *start = aligned_zeros(lay_out(w, NULL), &w->memory);
    if (!start) {
        twinlens_free(w);
        return NULL;
    }
    lay_out(w, start);
    for (Index i = 0; i < height; i++) /* [1, 2, 1] sums to 4, less 1 for a neighbour outside; down times across */
        for (Index j = 0; j < width; j++)
            w->diagonal[i * w->grid->stride + j] =
                (float)((4 - (i == 0) - (i == height - 1)) * (4 - (j == 0) - (j == width - 1)));
    return w;
}

/* ---- One image after the other. ---- */

/* Compute gain and dip of the finest grid; return the number of removed pixels. */
KERNEL void prepare_rows(const float *removed, const float *diagonal, Index n, Index stride, float *restrict sums,
                         float *restrict gain, float *restrict dip) {
    sum_down_float(removed, n, stride, sums);
    for (Index j = 0; j < n; j++) {
        gain[j] = removed[j] / larger(diagonal[j] - 4, 1);
        dip[j] = gain[j] * (sums[j] + sums[j + 2] + (sums[j + 1] + sums[j + 1]) - 4 * removed[j]);
    }
}

static Index prepare_finest(Workspace *w, const uint8_t *keep) {
    const Grid *g = w->grid;
    Index number = 0;
    for (Index i = 0; i < g->h; i++) {
        int row = 0;
        for (Index j = 0; j < g->w; j++) {
            w->removed[i * g->stride + j] = (float)!keep[i * g->w + j];
            row += !keep[i * g->w + j];
        }
        number += row;
    }
    for (Index first = 0; first < g->h; first += w->block) {
        Index n = (least(first + w->block, g->h) - first) * g->stride, k = first * g->stride;
        prepare_rows(w->removed + k, w->diagonal + k, n, g->stride, (float *)w->sums, w->gain + k, w->dip + k);
    }
    return number;
}

static double solve_image(Workspace *w, const void *image, int wide, const uint8_t *keep, double tolerance,
                          int64_t most_cycles, void *out, int64_t *cycles) {
    const Grid *g = w->grid;
    Index pixels = g->h * g->w, number = prepare_finest(w, keep);
    double widest = 0;
    *cycles = 0;
    if (number == pixels) return NOTHING_KEPT;
    for (Index c = 0; c < w->channels; c++) {
        int finite = wide ? find_range_double(w, (const double *)image + c * pixels, keep, w->low + c, w->high + c)
                          : find_range_float(w, (const float *)image + c * pixels, keep, w->low + c, w->high + c);
        if (!finite) return NOT_FINITE;
        widest = fmax(widest, w->high[c] - w->low[c]);
    }
    if (number == 0 || widest == 0) {
        for (Index c = 0; c < w->channels; c++)
            for (Index k = 0; k < pixels; k++)
                if (wide)
                    ((double *)out)[c * pixels + k] = keep[k] ? ((const double *)image)[c * pixels + k] : w->low[c];
                else
                    ((float *)out)[c * pixels + k] = keep[k] ? ((const float *)image)[c * pixels + k] : (float)w->low[c];
        return 0;
    }
    int exponent;
    frexp(widest, &exponent);
    double scale = ldexp(1, -(int)(wide ? most(least(exponent, 1000), -1000) : most(least(exponent, 120), -120)));
    double estimate = MISSED;
    if (!wide) estimate = solve_float(w, image, wide, keep, number, scale, tolerance, most_cycles, out, cycles);
    if (estimate == MISSED) estimate = solve_double(w, image, wide, keep, number, scale, tolerance, most_cycles, out, cycles);
    return estimate;
}

/* Solve images first to last of (N, C, H, W), of doubles if `wide`; write filled images, cycles and estimated errors,
   or the code of a failure in the place of the error. */
EXPORT void twinlens_solve(Workspace *w, const void *images, int wide, const uint8_t *keep, int64_t first, int64_t last,
                           double tolerance, int64_t most_cycles, void *out, int64_t *cycles, double *estimate) {
    size_t pixels = (size_t)(w->grid->h * w->grid->w), size = (size_t)w->channels * pixels * (wide ? 8 : 4);
    for (int64_t n = first; n < last; n++)
        estimate[n] = solve_image(w, (const char *)images + (size_t)n * size, wide, keep + (size_t)n * pixels, tolerance,
                                  most_cycles, (char *)out + (size_t)n * size, cycles + n);
}
