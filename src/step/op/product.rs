//! Matrix products.

use std::collections::BTreeMap;

use super::moved::Moved;
use super::name::ProductForm;
use super::results::broadcast;
use super::{Arithmetic, Primitive, Work, elements, total, volume};
use crate::profile::{Attribute, Operation, Shape};

/// `batch` products of `rows × reduction` with `reduction × columns`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Product {
    /// Independent products.
    pub batch: f64,
    /// Rows of each result.
    pub rows: f64,
    /// Columns of each result.
    pub columns: f64,
    /// The dimension summed over.
    pub reduction: f64,
    /// Whether it is the backward pass of a linear layer: the gradients of its input (`rows × reduction`) and of its
    /// weight, each with the FLOPs of the forward pass.
    pub is_backward: bool,
    /// Elements of the operation's own type read and written.
    pub moved: f64,
    /// Bytes read and written of elements of other types, such as a quantized factor.
    pub other_bytes: f64,
}

impl Product {
    pub(super) fn of(operation: &Operation, form: ProductForm) -> Option<Self> {
        let read = total(&operation.inputs);
        match form {
            ProductForm::Einsum => return einsum(operation, read),
            ProductForm::LinearBackward => {
                // Input [.., N], gradient [.., K] and weight [K, N].
                let [input, gradient, weight] = operation.inputs.get(..3)? else { return None };
                let (reduction, columns) = (*input.last()? as f64, *gradient.last()? as f64);
                let moved = 2.0 * read + volume(input) + volume(weight);
                let rows = volume(input) / reduction;
                let sizes = Self { batch: 1.0, rows, columns, reduction, is_backward: true, moved, other_bytes: 0.0 };
                return Some(sizes);
            }
            ProductForm::Trilinear => return trilinear(operation, read),
            ProductForm::Packed { word } => return packed(operation, word),
            ProductForm::Sparse { linear } => return sparse(operation, linear, read),
            ProductForm::Plain | ProductForm::BiasFirst | ProductForm::Linear | ProductForm::Grouped => {}
        }
        let [left, right] = factors(operation, form)?;
        let reduction = *left.last()?;
        let outer = elements(&left[..left.len() - 1]);
        let (batch, rows, columns) = match right[..] {
            [_] => (1.0, outer, 1.0),
            // Each row meets only the matrix of its group; assumes rows spread evenly over groups.
            [groups, _, columns] if form == ProductForm::Grouped && left.len() == 2 => {
                (groups as f64, outer / groups as f64, columns as f64)
            }
            // `linear` stores its weight as [columns, reduction]; kernel names do not show the order.
            [.., inner, last] if inner == reduction || last == reduction => {
                let columns = if inner == reduction { last } else { inner } as f64;
                let (batch, rows) = batches(left, right)?;
                (batch, rows, columns)
            }
            _ => return None,
        };
        // With `beta` 0 the summand is not read.
        let ignores_first = form == ProductForm::BiasFirst
            && operation.attributes.get("beta").is_some_and(|beta| matches!(beta, Attribute::Int(0)));
        let from: Moved = Moved::inputs(operation).into_iter().skip(usize::from(ignores_first)).sum();
        let result = Moved::outputs(operation).first().copied().filter(|result| result.other_bytes > 0.0);
        let moved = from + result.unwrap_or(Moved::own(batch * rows * columns));
        let sizes = Self {
            batch,
            rows,
            columns,
            reduction: reduction as f64,
            is_backward: false,
            moved: moved.elements,
            other_bytes: moved.other_bytes,
        };
        let nonzero = operation.attributes.get("nonzero").and_then(Attribute::as_int).filter(|count| *count >= 0);
        Some(nonzero.map_or(sizes, |count| sizes.of_sparse(count as f64)))
    }

    /// The same with a sparse first factor of `nonzero` elements, each with a 64-bit index. A row sums over the mean
    /// number of elements per row.
    fn of_sparse(self, nonzero: f64) -> Self {
        let all = self.batch * self.rows * self.reduction;
        let nonzero = nonzero.min(all);
        Self {
            reduction: self.reduction * if all > 0.0 { nonzero / all } else { 0.0 },
            moved: self.moved - all + nonzero,
            other_bytes: self.other_bytes + 8.0 * nonzero,
            ..self
        }
    }

    /// Floating-point operations.
    fn flops(&self) -> f64 {
        let forward = 2.0 * (self.batch * self.rows) * self.reduction * self.columns;
        if self.is_backward { 2.0 * forward } else { forward }
    }

    /// Work; `None` for empty tensors.
    pub(super) fn work(&self, element: f64) -> Option<Work> {
        Work::of_products(self.flops(), self.moved * element + self.other_bytes, Arithmetic::Product)
    }

    pub(super) fn primitives(&self) -> Vec<(Primitive, f64)> {
        let Self { batch, rows, columns, reduction, .. } = *self;
        let product = |rows, columns, reduction| (Primitive::Product { batch, rows, columns, reduction }, 1.0);
        if self.is_backward {
            vec![product(rows, reduction, columns), product(columns, reduction, rows)]
        } else {
            vec![product(rows, columns, reduction)]
        }
    }
}

/// The two factors of a product.
pub fn factors(operation: &Operation, form: ProductForm) -> Option<[&Shape; 2]> {
    let skip = usize::from(form == ProductForm::BiasFirst);
    let [left, right] = operation.inputs.get(skip..skip + 2)? else { return None };
    Some([left, right])
}

/// Number of products of two factors, and the rows of each. A single matrix as second factor meets all rows at once;
/// otherwise the leading dimensions are broadcast. `None` if they do not match.
fn batches(left: &Shape, right: &Shape) -> Option<(f64, f64)> {
    let (rows, lead) = left[..left.len() - 1].split_last().map_or((1, &[][..]), |(rows, lead)| (*rows, lead));
    let others = &right[..right.len() - 2];
    if lead.is_empty() {
        return Some((elements(others), rows as f64));
    }
    if elements(others) == 1.0 {
        return Some((1.0, elements(lead) * rows as f64));
    }
    Some((elements(&broadcast(&[lead, others])?), rows as f64))
}

/// A product of `[.., reduction]` with a quantized `[columns, ..]`. Without a recorded result, the columns are `word`
/// times the first extent.
fn packed(operation: &Operation, word: u64) -> Option<Product> {
    let [left, weight] = operation.inputs.get(..2)? else { return None };
    let reduction = *left.last()? as f64;
    let rows = volume(left) / reduction;
    let result = operation.outputs.first().and_then(|result| result.last());
    let columns = result.copied().unwrap_or(weight.first()?.saturating_mul(word)) as f64;
    // Eight 4-bit numbers per 4-byte word, otherwise one byte each.
    let other_bytes = volume(weight) * if word > 1 { 4.0 } else { 1.0 };
    let moved = total(&operation.inputs) - volume(weight) + rows * columns;
    Some(Product { batch: 1.0, rows, columns, reduction, is_backward: false, moved, other_bytes })
}

/// The product of `[.., reduction]` with `[results, reduction, others]`, the larger part of a bilinear form. Its result
/// is multiplied element-wise with `[.., others]`.
fn trilinear(operation: &Operation, read: f64) -> Option<Product> {
    let [left, weight, _] = operation.inputs.get(..3)? else { return None };
    let &[results, inner, others] = &weight[..] else { return None };
    let reduction = *left.last()?;
    if inner != reduction || reduction == 0 {
        return None;
    }
    let (rows, columns, reduction) = (volume(left) / reduction as f64, (results * others) as f64, reduction as f64);
    let moved = read + rows * results as f64;
    Some(Product { batch: 1.0, rows, columns, reduction, is_backward: false, moved, other_bytes: 0.0 })
}

/// A product with a factor in 2:4 sparsity, at half the FLOPs of the dense product.
fn sparse(operation: &Operation, linear: bool, read: f64) -> Option<Product> {
    let matrices: Vec<&Shape> = operation.inputs.iter().filter(|shape| shape.len() >= 2).collect();
    let (rows, columns, reduction) = if linear {
        let [left, kept, ..] = matrices[..] else { return None };
        (volume(left) / (2.0 * kept[1] as f64), kept[0] as f64, kept[1] as f64)
    } else {
        // Non-zero values, their positions, and the other factor.
        let [.., kept, _, right] = matrices[..] else { return None };
        (kept[0] as f64, right[1] as f64, kept[1] as f64)
    };
    let moved = read + rows * columns;
    Some(Product { batch: 1.0, rows, columns, reduction, is_backward: false, moved, other_bytes: 0.0 })
}

/// `einsum` of two factors; `None` without a recorded equation or with an ellipsis. Indices of both factors and the
/// result make the batch, those of one factor and the result its rows or columns; the rest are summed over.
fn einsum(operation: &Operation, read: f64) -> Option<Product> {
    let Some(Attribute::Text(equation)) = operation.attributes.get("equation") else { return None };
    let (factors, result) = equation.split_once("->")?;
    let factors: Vec<&str> = factors.split(',').map(str::trim).collect();
    let (&[left, right], result) = (&factors[..], result.trim()) else { return None };
    if operation.inputs.len() < 2 {
        return None;
    }
    let mut extents: BTreeMap<char, f64> = BTreeMap::new();
    for (factor, shape) in factors.iter().zip(&operation.inputs) {
        if factor.chars().count() != shape.len() {
            return None;
        }
        extents.extend(factor.chars().zip(shape.iter().map(|&extent| extent as f64)));
    }
    if !result.chars().all(|index| extents.contains_key(&index)) {
        return None;
    }
    let over = |keep: &dyn Fn(bool, bool, bool) -> bool| -> f64 {
        let has = |text: &str, index: char| text.contains(index);
        let kept = |index: char| keep(has(left, index), has(right, index), has(result, index));
        extents.iter().filter(|(index, _)| kept(**index)).map(|(_, extent)| extent).product()
    };
    let batch = over(&|left, right, result| left && right && result);
    let rows = over(&|_, right, result| !right && result);
    let columns = over(&|left, _, result| !left && result);
    let reduction = over(&|_, _, result| !result);
    let moved = read + batch * rows * columns;
    Some(Product { batch, rows, columns, reduction, is_backward: false, moved, other_bytes: 0.0 })
}
