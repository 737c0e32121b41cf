//! Matrix products.

use std::collections::BTreeMap;

use super::name::ProductForm;
use super::{Arithmetic, Primitive, Work, total, volume};
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
    /// Whether it is the backward pass of a linear layer: the gradients of its input
    /// (`rows × reduction`) and of its weight, each as much arithmetic as its forward pass.
    pub is_backward: bool,
    /// Elements read and written.
    pub moved: f64,
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
                return Some(Self { batch: 1.0, rows, columns, reduction, is_backward: true, moved });
            }
            ProductForm::Plain | ProductForm::BiasFirst | ProductForm::Linear | ProductForm::Grouped => {}
        }
        let [left, right] = factors(operation, form)?;
        let reduction = *left.last()? as f64;
        let outer = left.split_last()?.1.iter().map(|&n| n as f64).product::<f64>();
        let (batch, columns) = match right[..] {
            [_] => (1.0, 1.0),
            // Each row meets the matrix of its group only; rows are taken as spread evenly.
            [groups, _, columns] if form == ProductForm::Grouped && left.len() == 2 => (groups as f64, columns as f64),
            // `linear` has its weight as [columns, reduction]; the volume tells the columns
            // either way.
            _ => {
                let batch = batch_of(left, right);
                (batch, volume(right) / reduction / batch)
            }
        };
        let moved = read + outer * columns;
        Some(Self { batch, rows: outer / batch, columns, reduction, is_backward: false, moved })
    }

    /// Floating-point operations.
    fn flops(&self) -> f64 {
        let forward = 2.0 * (self.batch * self.rows) * self.reduction * self.columns;
        if self.is_backward { 2.0 * forward } else { forward }
    }

    /// Empty tensors do nothing.
    pub(super) fn work(&self, element: f64) -> Option<Work> {
        Work::of_products(self.flops(), self.moved, element, Arithmetic::Product)
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

/// The two factors of a product of one equation's order.
pub fn factors(operation: &Operation, form: ProductForm) -> Option<[&Shape; 2]> {
    let skip = usize::from(form == ProductForm::BiasFirst);
    let [left, right] = operation.inputs.get(skip..skip + 2)? else { return None };
    Some([left, right])
}

/// Leading dimensions that both factors of a batched product share.
fn batch_of(left: &Shape, right: &Shape) -> f64 {
    if left.len() >= 3 && right.len() >= 3 { right[..right.len() - 2].iter().map(|&n| n as f64).product() } else { 1.0 }
}

/// `einsum` of two factors, where its equation was recorded without an ellipsis. Indices of
/// both factors and the result count the products, those of one factor and the result its
/// rows or columns, and the rest is summed over.
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
    Some(Product { batch, rows, columns, reduction, is_backward: false, moved: read + batch * rows * columns })
}
