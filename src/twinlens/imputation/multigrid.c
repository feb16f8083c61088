/* The compiled kernels of `multigrid`, for tensors on the CPU: plain C, called through ctypes by `multigrid_compiled`.

   A *plane* is one channel of one grid: a pointer to its first point, rows of `stride` numbers with at least one zero
   after the last column, and zeros above, below and in front, which makes every neighbour a shift of the plane and
   whole blocks of rows a single loop. The stride is even: halving a row never crosses into the next.

   A volume has a slice where an image has a row: slices follow each other, with one or two rows of zeros after the last
   row of each, and slices of zeros above and below. Images have one slice, whose length is never needed: it is 0.

   Images are shifted and scaled to about [-1/2, 1/2]. Coarse grids, which only ever hold corrections, are float; the
   finest is float or double, as the tolerance asks.

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
enum { MISSED = -1, NOTHING_KEPT = -2, NOT_FINITE = -3, NO_MEMORY = -4 }; /* instead of an error estimate */

/* Up to this share of removed pixels, and this dip, sweeps over them are cheaper than a cycle over all pixels. */
#define SCATTERED_SHARE 0.17
#define SCATTERED_DIP 0.95f
#define MOST_SWEEPS 200

#define LANES 16          /* rows of large images are padded to a multiple of this: they begin with a cache line */
#define BLOCK_VALUES 2048 /* numbers handled at once: the next pass finds them in the cache */
#define COARSEST 16       /* grids of at most this height and width are solved by factorisation */
#define SMALL 64          /* of images up to this height and width, grids of half that size */
#define COARSEST_VOLUME 4 /* grids of at most this depth, height and width are factorised for a volume */
#define MOST_GRIDS 32
enum { CENTRE, EAST, SOUTH, SOUTHEAST, SOUTHWEST, INVERSE, DIP, OPERATOR }; /* the planes of a coarse operator */

enum { COUPLINGS = 14, VOLUME_INVERSE = COUPLINGS, VOLUME_DIP, VOLUME_OPERATOR }; /* the same for a volume */

/* A version of each loop for what the processor can do, chosen when the library is loaded. */
#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__) && __GNUC__ >= 12
#define KERNEL __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default"))) static
#else
#define KERNEL static
#endif
#if defined(_MSC_VER)
#define restrict __restrict
#endif
#if defined(_WIN32)
#define EXPORT __declspec(dllexport)
#else
#define EXPORT __attribute__((visibility("default")))
#endif
EXPORT void *PyInit__multigrid(void);

typedef ptrdiff_t Index;

static Index least(Index a, Index b) { return a < b ? a : b; }
static Index most(Index a, Index b) { return a > b ? a : b; }
static float larger(float a, float b) { return a > b ? a : b; }

typedef struct {
    Index d, h, w;             /* depth, height, width */
    Index stride, slice;       /* length of a row, and of a slice of a volume */
    Index plane;               /* distance between planes */
    float *x, *y, *b;          /* solution, smoothed solution, right-hand side: one plane per channel each */
    float *a;                  /* the operator, see CENTRE and so on */
    float *weight;             /* how much of a point is known, for the first guess */
} Grid;

typedef struct {
    Index channels, grids;
    Index block;                 /* rows handled at once, an even number */
    Grid grid[MOST_GRIDS];       /* of the finest, x, y, b, a and weight are not used */
    void *memory;                /* of everything but the solution on the finest grid, which is */
    void *solution[2];           /* float, or double */
    float *gain, *dip, *removed; /* of the finest grid: removed / diagonal, dip, removed */
    float *diagonal;             /* its diagonal + 4: first row, some of those between, last row */
    Index diagonals;             /* how many rows these are */
    double *above;               /* of each channel of the finest grid, the row above a block before smoothing */
    double *sums;                /* a block of rows; of `residual` one per channel */
    float *residual, *zeros, *changes;
    float *scaled, *odd, *even, *folded; /* a block of stencils, by odd and even columns, after folding columns */
    double *before, *after;              /* sums of four slices of the finest grid, before and after smoothing */
    float *gathered, *between, *slices;  /* a slice from three; one between two; four slices of folded stencils */
    Index block_size;                    /* of each of these */
    double *band, *column;               /* the factorised operator of the coarsest grid, and its unknowns */
    double *low, *high;                  /* the range of each channel */
    double *range;                       /* of each column */
    int32_t *places;                     /* of scattered removed pixels */
    int visits[MOST_GRIDS];
} Workspace;

static int is_volume(const Workspace *w) { return w->grid->slice > 0; }
static Index longest(const Grid *g) { return most(g->d, most(g->h, g->w)); }

/* Return where row i of all rows of a grid begins. */
static Index row_start(const Grid *g, Index i) { return i / g->h * g->slice + i % g->h * g->stride; }

/* ---- Between grids: coarse point (Z, Y, X) lies on fine point (2Z, 2Y, 2X). ---- */

/* Interpolate coarse rows to `rows` + 1 fine ones, of which the first is even. */
KERNEL void widen(const float *coarse, Index rows, Index width, Index stride, Index coarse_stride,
                  float *restrict out) {
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

/* Sizes of numbers compare as integers do, and NaN is larger than all of them: unlike a maximum of floats, that is
   vectorised, and sees NaN. */
static inline int32_t larger_size(int32_t largest, float value) {
    int32_t bits;
    value = fabsf(value);
    memcpy(&bits, &value, sizeof bits);
    return bits > largest ? bits : largest;
}

static inline float float_of(int32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

KERNEL float largest_of(const float *values, Index n) {
    int32_t largest = 0;
    for (Index j = 0; j < n; j++) largest = larger_size(largest, values[j]);
    return float_of(largest);
}

/* Write 1 where pixels are kept (`kept` 1), or where they are removed (`kept` 0), and 0 elsewhere. */
KERNEL void spread(const uint8_t *keep, int kept, Index height, Index width, Index stride, float *restrict out) {
    for (Index i = 0; i < height; i++, keep += width, out += stride)
        for (Index j = 0; j < width; j++) out[j] = (float)((keep[j] != 0) == kept);
}

/* Return a power of two near a value, such that float, or double if `wide`, can hold it: scaling by it is exact. */
static double power_near(double value, int wide) {
    int exponent, limit = wide ? 1000 : 120;
    frexp(value, &exponent);
    return ldexp(1, (int)most(least(exponent, limit), -limit));
}

/* Return the diagonal + 4 of some rows of the finest grid, at most a block and one; all but two rows are the same. */
static const float *diagonal_rows(const Workspace *w, Index first, Index last) {
    Index row = first == 0 ? 0 : last == w->grid->h ? w->diagonals - (last - first) : 1;
    return w->diagonal + row * w->grid->stride;
}

/* Of a volume, return the factor of `diagonal` in slice z. */
static float depth_share(const Workspace *w, Index z) { return (float)(4 - (z == 0) - (z == w->grid->d - 1)); }

/* Return the buffer for slice z of the residual. */
static float *residual_slot(const Workspace *w, const Grid *g, Index z) { return w->residual + (z & 3) * g->slice; }

static void spread_slices(Workspace *w, const uint8_t *keep, int kept) {
    const Grid *g = w->grid;
    for (Index z = 0; z < g->d; z++)
        spread(keep + z * g->h * g->w, kept, g->h, g->w, g->stride, w->removed + z * g->slice);
}

KERNEL void average(const float *first, const float *second, Index n, float *restrict out) {
    for (Index j = 0; j < n; j++) out[j] = 0.5f * (first[j] + second[j]);
}

/* Return how much rounding grows, about: where few pixels are kept, and seldom by more than ROUNDING_LIMIT times that.

   The error is smooth: random errors, divided by the smallest eigenvalue of the system. */
static double image_growth(const Workspace *w) {
    double longer = (double)most(w->grid->h, w->grid->w), shorter = (double)least(w->grid->h, w->grid->w);
    return sqrt(longer * longer * longer / shorter);
}

/* The same for a volume: the more voxels are kept, the less it grows, even where all of them lie together. */
static double volume_growth(const Workspace *w, Index removed) {
    const Grid *g = w->grid;
    double voxels = (double)(g->d * g->h * g->w), longer = (double)longest(g);
    double shorter = (double)least(g->d, least(g->h, g->w)), middle = voxels / longer / shorter;
    return (longer * longer + longer * middle + voxels / cbrt(voxels - (double)removed)) / sqrt(voxels);
}

static void coarse_cycle(Workspace *w);
static void hand_down(Workspace *w, float *residual, float *rhs, const Grid *g, Index first, Index last);
static void set_up(Workspace *w);
static void guess_coarse(Workspace *w);
static void descend_volume(Workspace *w, const Grid *g, int fresh);
static void ascend_volume(Workspace *w, const Grid *g);
static void hand_down_slice(Workspace *w, const Grid *g, Index z, float *rhs);
static void set_up_volume(Workspace *w);
static void guess_coarse_volume(Workspace *w);
static Index band_length(const Grid *g);
static char *finest_planes(Workspace *w, int wide);
static void clear(Workspace *w);

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

#include "multigrid_coarse.h"
#include "multigrid_coarse_volume.h"

/* ---- Memory. ---- */

/* Take `planes` planes of `size` numbers, whose first point, `front` numbers in, begins a cache line. */
static void *take(char *start, size_t *used, Index planes, Index size, Index front, size_t item) {
    size_t offset = *used + (size_t)front * item;
    *used += (size_t)(planes * size) * item;
    return start ? start + offset : NULL;
}

static Index rounded(Index count, Index unit) { return (count + unit - 1) / unit * unit; }

/* Return how many zeros are in front of a plane. */
static Index front_of(const Grid *g) { return rounded(g->slice + g->stride + 1, LANES); }

/* Return how far apart the first and the last of the unknowns are that the coarsest operator couples, plus 1. */
static Index band_length(const Grid *g) { return (g->slice ? g->h * g->w : 0) + g->w + 2; }

/* Lay out all buffers from `start` on, and return the bytes that they take; with NULL, only that. */
static size_t lay_out(Workspace *w, char *start) {
    size_t used = 0;
    Index C = w->channels, stride = w->grid->stride, slice = w->grid->slice;
    for (Index i = 0; i < w->grids; i++) {
        Grid *g = w->grid + i;
        Index front = front_of(g), rows = g->slice ? (g->d + 3) * (g->slice / g->stride) : g->h + 2;
        g->plane = rounded(front + rows * g->stride + 2, LANES);
        if (i == 0) {
            w->gain = take(start, &used, 1, g->plane, front, sizeof(float));
            w->dip = take(start, &used, 1, g->plane, front, sizeof(float));
            w->removed = take(start, &used, 1, g->plane, front, sizeof(float));
            continue;
        }
        g->x = take(start, &used, C, g->plane, front, sizeof(float));
        g->y = take(start, &used, C, g->plane, front, sizeof(float));
        g->b = take(start, &used, C, g->plane, front, sizeof(float));
        g->a = take(start, &used, g->slice ? VOLUME_OPERATOR : OPERATOR, g->plane, front, sizeof(float));
        g->weight = take(start, &used, 1, g->plane, front, sizeof(float));
    }
    const Grid *coarsest = w->grid + w->grids - 1;
    Index unknowns = coarsest->d * coarsest->h * coarsest->w, length = band_length(coarsest);
    Index size = w->block_size = rounded(most((w->block + 4) * stride, slice + 2 * stride) + LANES, LANES);
    w->sums = take(start, &used, 1, size, 0, sizeof(double));
    w->residual = take(start, &used, slice ? 4 : C, size, 0, sizeof(float));
    w->diagonal = take(start, &used, 1, size, 0, sizeof(float));
    w->above = take(start, &used, C, stride + LANES, 0, sizeof(double));
    w->zeros = take(start, &used, 1, size, 0, sizeof(float));
    w->changes = take(start, &used, 1, size, 0, sizeof(float));
    float **stencils[] = {&w->scaled, &w->odd, &w->even, &w->folded};
    for (int i = 0; i < 4; i++) *stencils[i] = take(start, &used, slice ? COUPLINGS : 5, size, 0, sizeof(float));
    if (slice) {
        w->before = take(start, &used, 4, size, 0, sizeof(double));
        w->after = take(start, &used, 4, size, 0, sizeof(double));
        w->gathered = take(start, &used, 1, size, 0, sizeof(float));
        w->between = take(start, &used, 1, size, 0, sizeof(float));
        w->slices = take(start, &used, 4, rounded(COUPLINGS * w->grid[1].slice, LANES), 0, sizeof(float));
    }
    w->band = take(start, &used, 1, rounded((unknowns + length) * length, LANES), 0, sizeof(double));
    w->column = take(start, &used, 1, rounded(C * (unknowns + length), LANES), 0, sizeof(double));
    w->low = take(start, &used, 1, rounded(C, LANES), 0, sizeof(double));
    w->high = take(start, &used, 1, rounded(C, LANES), 0, sizeof(double));
    w->range = take(start, &used, 2, stride, 0, sizeof(double));
    Index most_places = slice ? 0 : (Index)(SCATTERED_SHARE * (double)(w->grid->h * w->grid->w)) + 1;
    w->places = take(start, &used, 1, rounded(most_places, LANES), 0, sizeof(int32_t));
    return used;
}

static void *aligned_zeros(size_t bytes, void **memory) {
    *memory = calloc(bytes + 64, 1);
    return *memory ? (char *)*memory + (64 - (uintptr_t)*memory % 64) : NULL;
}

/* Return the solution on the finest grid, or NULL for want of memory; `wide`: of doubles. */
static char *finest_planes(Workspace *w, int wide) {
    size_t bytes = (size_t)(w->channels * w->grid->plane) * (wide ? sizeof(double) : sizeof(float));
    if (!w->solution[wide] && !aligned_zeros(bytes, &w->solution[wide])) return NULL;
    char *start = (char *)w->solution[wide] + (64 - (uintptr_t)w->solution[wide] % 64);
    return start + (size_t)front_of(w->grid) * (wide ? sizeof(double) : sizeof(float));
}

EXPORT void twinlens_free(Workspace *w) {
    if (!w) return;
    free(w->solution[0]);
    free(w->solution[1]);
    free(w->memory);
    free(w);
}

/* Set all solutions to zero, outside of the grids as well. */
static void clear(Workspace *w) {
    for (Index i = 1; i < w->grids; i++) {
        const Grid *g = w->grid + i; /* x, y and b follow each other */
        memset(g->x - front_of(g), 0, (size_t)(3 * w->channels * g->plane) * sizeof(float));
    }
    size_t values = (size_t)(w->channels * w->grid->plane);
    if (w->solution[0]) memset(w->solution[0], 0, values * sizeof(float) + 64);
    if (w->solution[1]) memset(w->solution[1], 0, values * sizeof(double) + 64);
}

/* Allocate the buffers for images of that shape, or for volumes if the depth is more than 1; each thread needs its own.
   NULL for want of memory. */
EXPORT Workspace *twinlens_workspace(int64_t channels, int64_t depth, int64_t height, int64_t width) {
    Workspace *w = calloc(1, sizeof(Workspace));
    if (!w) return NULL;
    Index largest = most(height, width);
    /* Factorising 16 × 16 unknowns would be most of the work for a small image. */
    Index enough = largest > SMALL ? COARSEST : COARSEST / 2, unit = largest > SMALL ? LANES : 2;
    if (depth > 1) enough = COARSEST_VOLUME, unit = 2;
    w->channels = channels;
    for (Index d = depth, h = height, wide = width;; d = d / 2 + 1, h = h / 2 + 1, wide = wide / 2 + 1) {
        Grid *g = w->grid + w->grids++;
        g->d = d, g->h = h, g->w = wide, g->stride = rounded(wide + 1, unit);
        g->slice = depth > 1 ? rounded(h + 1, 2) * g->stride : 0;
        if (w->grids > 1 && longest(g) <= enough) break;
    }
    w->block = most(least(BLOCK_VALUES / w->grid->stride / 2 * 2, 8), 2);
    char *start = aligned_zeros(lay_out(w, NULL), &w->memory);
    if (!start) {
        twinlens_free(w);
        return NULL;
    }
    lay_out(w, start);
    /* [1, 2, 1] sums to 4, less 1 for a neighbour outside; down times across. */
    for (Index i = 0, rows = w->diagonals = depth > 1 ? height : least(height, w->block + 3); i < rows; i++)
        for (Index j = 0; j < width; j++)
            w->diagonal[i * w->grid->stride + j] =
                (float)((4 - (i == 0) - (i == rows - 1)) * (4 - (j == 0) - (j == width - 1)));
    return w;
}

/* ---- One image after the other. ---- */

KERNEL void prepare_rows(const float *removed, const float *diagonal, Index n, Index stride, float *restrict sums,
                         float *restrict gain, float *restrict dip) {
    for (Index j = -1; j <= n; j++) sums[j + 1] = removed[j - stride] + removed[j + stride] + (removed[j] + removed[j]);
    for (Index j = 0; j < n; j++) {
        gain[j] = removed[j] / larger(diagonal[j] - 4, 1);
        dip[j] = gain[j] * (sums[j] + sums[j + 2] + (sums[j + 1] + sums[j + 1]) - 4 * removed[j]);
    }
}

KERNEL Index count_kept(const uint8_t *keep, Index n) {
    int32_t kept = 0;
    for (Index k = 0; k < n; k++) kept += keep[k] != 0;
    return kept;
}

KERNEL void prepare_slice(const float *removed, const float *above, const float *here, const float *below,
                          const float *diagonal, float share, Index n, float *restrict gain, float *restrict dip) {
    for (Index j = 0; j < n; j++) {
        gain[j] = removed[j] / larger(share * diagonal[j] - 8, 1);
        dip[j] = gain[j] * (above[j] + below[j] + (here[j] + here[j]) - 8 * removed[j]);
    }
}

static void prepare_slices(Workspace *w, const uint8_t *keep) {
    const Grid *g = w->grid;
    Index n = g->slice;
    float *sums = (float *)w->before;
    spread_slices(w, keep, 0);
    memset(sums + 3 * n, 0, (size_t)n * sizeof(float));
    for (Index z = 0; z <= g->d; z++) {
        sum_slice_float(w->removed + z * n, n, g->stride, (float *)w->sums, sums + (z & 3) * n);
        if (z > 0)
            prepare_slice(w->removed + (z - 1) * n, sums + ((z - 2) & 3) * n, sums + ((z - 1) & 3) * n,
                          sums + (z & 3) * n, w->diagonal, depth_share(w, z - 1), n, w->gain + (z - 1) * n,
                          w->dip + (z - 1) * n);
    }
}

/* Compute gain and dip of the finest grid; return the number of removed pixels. */
static Index prepare_finest(Workspace *w, const uint8_t *keep) {
    const Grid *g = w->grid;
    Index kept = 0;
    for (Index i = 0; i < g->d * g->h; i++) kept += count_kept(keep + i * g->w, g->w); /* a row fits 32 bits */
    if (is_volume(w)) {
        prepare_slices(w, keep);
        return g->d * g->h * g->w - kept;
    }
    spread(keep, 0, g->h, g->w, g->stride, w->removed);
    for (Index first = 0; first < g->h; first += w->block) {
        Index last = least(first + w->block, g->h), k = first * g->stride;
        prepare_rows(w->removed + k, diagonal_rows(w, first, last), (last - first) * g->stride, g->stride,
                     (float *)w->sums, w->gain + k, w->dip + k);
    }
    return g->h * g->w - kept;
}

static double solve_image(Workspace *w, const void *image, int wide, const uint8_t *keep, double tolerance,
                          int64_t most_cycles, void *out, int64_t *cycles) {
    const Grid *g = w->grid;
    Index pixels = g->d * g->h * g->w, number = prepare_finest(w, keep);
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
                    ((float *)out)[c * pixels + k] =
                        keep[k] ? ((const float *)image)[c * pixels + k] : (float)w->low[c];
        return 0;
    }
    double estimate = MISSED;
    if (!wide) estimate = solve_float(w, image, wide, keep, number, widest, tolerance, most_cycles, out, cycles);
    if (estimate == MISSED)
        estimate = solve_double(w, image, wide, keep, number, widest, tolerance, most_cycles, out, cycles);
    return estimate;
}

/* Solve images first to last of (N, C, H, W), or volumes (N, C, D, H, W), of doubles if `wide`, `stride` numbers apart;
   write filled images, cycles and estimated errors, or the code of a failure instead of the error. */
EXPORT void twinlens_solve(Workspace *w, const void *images, int64_t stride, int wide, const uint8_t *keep,
                           int64_t first, int64_t last, double tolerance, int64_t most_cycles, void *out,
                           int64_t *cycles, double *estimate) {
    size_t pixels = (size_t)(w->grid->d * w->grid->h * w->grid->w), item = wide ? 8 : 4;
    size_t size = (size_t)w->channels * pixels * item;
    for (int64_t n = first; n < last; n++)
        estimate[n] = solve_image(w, (const char *)images + n * stride * (int64_t)item, wide, keep + (size_t)n * pixels,
                                  tolerance, most_cycles, (char *)out + (size_t)n * size, cycles + n);
}

#include "noise.h"

/* What setuptools exports on Windows, for it takes this for a module of Python; nobody calls it. */
void *PyInit__multigrid(void) { return NULL; }
