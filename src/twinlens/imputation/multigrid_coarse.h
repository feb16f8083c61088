/* The coarse grids of `multigrid.c`: cycles, operators and the first guess. */

/* ---- Cycles. ---- */

/* Compute base + factor·share·(b - A x) for n numbers. */
KERNEL void sweep(const float *a, Index plane, const float *x, const float *b, const float *share, const float *base,
                  float factor, Index n, Index stride, float *restrict out) {
    const float *above = x - stride, *below = x + stride;
    const float *east = a + EAST * plane, *south = a + SOUTH * plane, *north = south - stride;
    const float *southeast = a + SOUTHEAST * plane, *southwest = a + SOUTHWEST * plane;
    const float *northwest = southeast - stride, *northeast = southwest - stride;
    for (Index j = 0; j < n; j++) {
        float sum = a[j] * x[j] + east[j] * x[j + 1] + east[j - 1] * x[j - 1] + south[j] * below[j];
        sum += north[j] * above[j] + southeast[j] * below[j + 1] + southwest[j] * below[j - 1];
        sum += northwest[j - 1] * above[j - 1] + northeast[j + 1] * above[j + 1];
        out[j] = base[j] + factor * share[j] * (b[j] - sum);
    }
}

KERNEL void first_sweep(const float *inverse, const float *b, Index n, float *restrict y) {
    for (Index j = 0; j < n; j++) y[j] = COARSE_DAMPING * inverse[j] * b[j];
}

/* Run one damped Jacobi sweep over rows first to last of one channel. */
static void relax(const Grid *g, const float *x, Index c, Index first, Index last, float *out) {
    Index k = first * g->stride, d = c * g->plane + k;
    sweep(g->a + k, g->plane, x + d, g->b + d, g->a + INVERSE * g->plane + k, x + d, COARSE_DAMPING,
          (last - first) * g->stride, g->stride, out + d);
}

/* Restrict a block of residual rows, and keep its last row for the next block. */
static void hand_down(Workspace *w, float *residual, float *rhs, const Grid *g, Index first, Index last) {
    Index stride = g->stride, rows = w->block / 2;
    const Grid *next = g + 1;
    if (last == g->h) {
        memset(residual + (last - first + 1) * stride, 0, (size_t)(2 * stride) * sizeof(float));
        rows = next->h - first / 2;
    }
    restrict_rows_float(residual, rhs + first / 2 * next->stride, rows, next->w, stride, next->stride, w->changes);
    memmove(residual, residual + w->block * stride, (size_t)stride * sizeof(float));
}

/* Smooth on a coarse grid, from zero if it is fresh, and restrict the residual to the next. */
static void descend(Workspace *w, const Grid *g, int fresh) {
    Index stride = g->stride;
    for (Index c = 0; c < w->channels; c++) memset(w->residual + c * w->block_size, 0, (size_t)stride * sizeof(float));
    for (Index first = 0, done = 0; first < g->h; first += w->block) {
        Index last = least(first + w->block, g->h), ahead = least(last + 1, g->h), k = first * stride;
        for (Index c = 0; c < w->channels; c++) { /* inside: the operator is still in the cache */
            float *residual = w->residual + c * w->block_size;
            Index d = c * g->plane, start = done * stride;
            if (fresh)
                first_sweep(g->a + INVERSE * g->plane + start, g->b + d + start, (ahead - done) * stride, g->y + d + start);
            else
                relax(g, g->x, c, done, ahead, g->y);
            sweep(g->a + k, g->plane, g->y + d + k, g->b + d + k, g->a + DIP * g->plane + k, w->zeros, 1,
                  (last - first) * stride, stride, residual + stride);
            hand_down(w, residual, g[1].b + c * g[1].plane, g, first, last);
        }
        done = ahead;
    }
}

/* Correct and smooth on a coarse grid. */
static void ascend(Workspace *w, const Grid *g) {
    for (Index first = 0, done = 0; first < g->h; first += w->block) {
        Index last = least(first + w->block, g->h), ready = last == g->h ? last : last - 1;
        for (Index c = 0; c < w->channels; c++) {
            correct_float(w, g, g[1].x + c * g[1].plane, g->y + c * g->plane, g->a + DIP * g->plane, first, last, 1);
            relax(g, g->y, c, done, ready, g->x);
        }
        done = ready;
    }
}

/* Eliminate one unknown, whose row of the band is `row`; `whole` is its diagonal before any elimination. */
KERNEL void eliminate(double *restrict row, Index length, double whole) {
    double inverse = whole > 1e-5 && row[0] > 1e-7 * whole ? 1 / row[0] : 0; /* 0: no unknown there */
    for (Index p = 1; p < length; p++) {
        double share = row[p] * inverse, *restrict target = row + p * length;
        for (Index q = p; q < length; q++) target[q - p] -= share * row[q];
    }
    for (Index p = 1; p < length; p++) row[p] *= inverse;
    row[0] = inverse;
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
    for (Index k = 0; k < H * W; k++) eliminate(w->band + k * length, length, g->a[k / W * g->stride + k % W]);
}

/* Solve for `channels` columns of n unknowns by the factorised band. */
KERNEL void substitute(const double *band, Index length, Index n, Index channels, double *columns, Index size) {
    /* Channels inside the rows: their chains of dependent operations overlap. */
    for (Index k = 0; k < n; k++)
        for (Index c = 0; c < channels; c++) {
            const double *row = band + k * length;
            double *restrict tail = columns + c * size + k, head = tail[0];
            for (Index p = 1; p < length; p++) tail[p] -= row[p] * head;
        }
    for (Index c = 0; c < channels; c++) memset(columns + c * size + n, 0, (size_t)length * sizeof(double));
    for (Index k = n - 1; k >= 0; k--)
        for (Index c = 0; c < channels; c++) {
            const double *row = band + k * length;
            double *tail = columns + c * size + k, total = tail[0] * row[0], sums[4] = {0};
            Index p = 1;
            for (; p + 4 <= length; p += 4)
                for (int q = 0; q < 4; q++) sums[q] += row[p + q] * tail[p + q];
            for (; p < length; p++) total -= row[p] * tail[p];
            tail[0] = total - (sums[0] + sums[1] + (sums[2] + sums[3]));
        }
}

static void solve_coarsest(Workspace *w) {
    const Grid *g = w->grid + w->grids - 1;
    Index n = g->d * g->h * g->w, length = band_length(g), size = n + length;
    memset(w->column, 0, (size_t)(w->channels * size) * sizeof(double));
    for (Index c = 0; c < w->channels; c++)
        for (Index i = 0; i < g->d * g->h; i++)
            for (Index j = 0; j < g->w; j++)
                w->column[c * size + i * g->w + j] = g->b[c * g->plane + row_start(g, i) + j];
    substitute(w->band, length, n, w->channels, w->column, size);
    for (Index c = 0; c < w->channels; c++)
        for (Index i = 0; i < g->d * g->h; i++)
            for (Index j = 0; j < g->w; j++)
                g->x[c * g->plane + row_start(g, i) + j] = (float)w->column[c * size + i * g->w + j];
}

/* Run one cycle from grid 1 on, without recursion: a W-cycle between large grids, a V-cycle below.

   V-cycles alone leave too much of the smooth error where nearly everything was removed. */
static void coarse_cycle(Workspace *w) {
    Index last = w->grids - 1, grid = 1;
    int volume = is_volume(w);
    memset(w->visits, 0, sizeof w->visits);
    for (;;) {
        for (; grid < last; grid++) (volume ? descend_volume : descend)(w, w->grid + grid, w->visits[grid]++ == 0);
        solve_coarsest(w);
        while (grid > 1) {
            const Grid *g = w->grid + --grid;
            (volume ? ascend_volume : ascend)(w, g);
            if (grid > 1 && w->visits[grid] == 1 && longest(g) > VISIT_ONCE) break;
            w->visits[grid] = 0;
        }
        if (grid == 1 && (last == 1 || w->visits[1] == 0)) return;
    }
}

/* ---- Operators, which depend on what is kept alone. ---- */

/* Scale the stencils of n points of a coarse grid: each coefficient times the dips at both of its ends. */
KERNEL void scale(const float *a, Index plane, const float *dip, Index n, Index stride, float *restrict out,
                  Index size) {
    const float *south = dip + stride;
    for (Index j = 0; j < n; j++) out[j] = a[j] * dip[j] * dip[j];
    for (Index j = 0; j < n; j++) out[EAST * size + j] = a[EAST * plane + j] * dip[j] * dip[j + 1];
    for (Index j = 0; j < n; j++) out[SOUTH * size + j] = a[SOUTH * plane + j] * dip[j] * south[j];
    for (Index j = 0; j < n; j++) out[SOUTHEAST * size + j] = a[SOUTHEAST * plane + j] * dip[j] * south[j + 1];
    for (Index j = 0; j < n; j++) out[SOUTHWEST * size + j] = a[SOUTHWEST * plane + j] * dip[j] * south[j - 1];
}

KERNEL void scale_finest(const float *diagonal, const float *dip, Index n, Index stride, float *restrict out,
                         Index size) {
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
            scale_finest(diagonal_rows(w, first, last), w->dip + k, n, stride, w->scaled, size);
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

/* Compute inverse and dip of n points from the sum of the diagonal and its positive couplings, and that of all. */
KERNEL void complete_points(float *restrict inverse, float *restrict dip, Index n) {
    for (Index j = 0; j < n; j++) {
        int there = inverse[j] > 1e-5f;
        float one_by = 1 / (there ? inverse[j] : 1);
        dip[j] = there ? larger(1 - larger(dip[j], 0) * one_by, 0) : 0;
        inverse[j] = there ? one_by : 0;
    }
}

/* Sum up the diagonal and the positive couplings of n points, and all of their coefficients.

   Positive couplings appear on coarse grids; with the plain diagonal they make Jacobi diverge. */
KERNEL void sum_couplings(const float *a, Index plane, Index n, Index stride, float *restrict inverse,
                          float *restrict dip) {
    const float *east = a + EAST * plane, *south = a + SOUTH * plane, *north = south - stride;
    const float *southeast = a + SOUTHEAST * plane, *southwest = a + SOUTHWEST * plane;
    const float *northwest = southeast - stride - 1, *northeast = southwest - stride + 1;
    for (Index j = 0; j < n; j++) {
        inverse[j] = a[j] + larger(east[j], 0) + larger(east[j - 1], 0) + larger(south[j], 0) + larger(north[j], 0);
        dip[j] = a[j] + east[j] + east[j - 1] + south[j] + north[j];
    }
    for (Index j = 0; j < n; j++) {
        inverse[j] +=
            larger(southeast[j], 0) + larger(southwest[j], 0) + larger(northwest[j], 0) + larger(northeast[j], 0);
        dip[j] += southeast[j] + southwest[j] + northwest[j] + northeast[j];
    }
}

/* Set up the coarse grids. */
static void set_up(Workspace *w) {
    for (Index grid = 0; grid < w->grids - 1; grid++) {
        const Grid *g = w->grid + grid + 1;
        float *inverse = g->a + INVERSE * g->plane, *dip = g->a + DIP * g->plane;
        galerkin(w, g - 1);
        sum_couplings(g->a, g->plane, g->h * g->stride, g->stride, inverse, dip);
        complete_points(inverse, dip, g->h * g->stride);
    }
    factor(w);
}

KERNEL void divide(float *restrict x, const float *weight, Index n) {
    for (Index j = 0; j < n; j++) x[j] /= weight[j] > 1 ? weight[j] : 1;
}

KERNEL void limit(float *restrict weight, Index n) {
    for (Index j = 0; j < n; j++) weight[j] = weight[j] < 1 ? weight[j] : 1;
}

/* Guess the unknown points of the coarsest grid: the weighted mean of the known ones. */
static void fill_coarsest(Workspace *w) {
    const Grid *g = w->grid + w->grids - 1;
    for (Index c = 0; c < w->channels; c++) {
        double total = 0, weight = 0;
        for (Index i = 0; i < g->d * g->h; i++)
            for (Index k = row_start(g, i); k < row_start(g, i) + g->w; k++)
                total += g->x[c * g->plane + k], weight += g->weight[k];
        for (Index i = 0; i < g->d * g->h; i++)
            for (Index k = row_start(g, i); k < row_start(g, i) + g->w; k++)
                g->x[c * g->plane + k] += (1 - g->weight[k]) * (float)(total / weight);
    }
}

/* Turn the weight of each point into that of the guess. */
static void subtract_from_one(const Grid *g) {
    for (Index i = 0; i < g->d * g->h; i++)
        for (Index k = row_start(g, i); k < row_start(g, i) + g->w; k++) g->weight[k] = 1 - g->weight[k];
}

/* Guess the unknown points of grid 1 and below from ever wider weighted means of the known ones ("pull-push"). */
static void guess_coarse(Workspace *w) {
    Index last = w->grids - 1;
    for (Index grid = 1; grid <= last; grid++) {
        const Grid *g = w->grid + grid;
        if (grid > 1) {
            const Grid *f = g - 1;
            restrict_rows_float(f->weight - f->stride, g->weight, g->h, g->w, f->stride, g->stride, w->changes);
            for (Index c = 0; c < w->channels; c++)
                restrict_rows_float(f->x + c * f->plane - f->stride, g->x + c * g->plane, g->h, g->w, f->stride,
                                    g->stride, w->changes);
        }
        for (Index c = 0; c < w->channels; c++) divide(g->x + c * g->plane, g->weight, g->h * g->stride);
        limit(g->weight, g->h * g->stride);
    }
    fill_coarsest(w);
    for (Index grid = last - 1; grid > 0; grid--) {
        const Grid *g = w->grid + grid;
        subtract_from_one(g);
        for (Index c = 0; c < w->channels; c++)
            correct_float(w, g, g[1].x + c * g[1].plane, g->x + c * g->plane, g->weight, 0, g->h, 1);
    }
}
