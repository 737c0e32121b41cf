//! Passes of a decoder's training step: forward, backward, and the update of the weights.

use super::super::Recompute;
use super::{Linear, Made};
use crate::profile::tensors::{OUTPUT_DTYPES, note_dtypes};
use crate::profile::{DType, Phase};

impl Made<'_> {
    fn layers(&mut self) {
        for (count, experts) in self.parts() {
            let [norm, attention, behind, inner] =
                ["input_norm", "attention", "inner_norm", "inner"].map(Self::of_layers);
            self.norm(count, &norm);
            for linear in self.projections() {
                self.linear(count, &attention, linear);
            }
            self.rotation(count, &attention);
            self.attention(count, &attention);
            let output = self.output();
            self.linear(count, &attention, output);
            self.norm(count, &behind);
            match experts {
                Some(experts) => self.experts(count, experts, false),
                None => self.dense(count, &inner, self.of.inner),
            }
        }
    }

    /// Repeats a layer without attention and half of its products. Those of experts count as plain ones.
    fn operators(&mut self, count: u32) {
        let rows = self.tokens();
        let module = &Self::of_layers("repeated");
        let inner = self.of.experts.map_or(self.of.inner, |experts| experts.chosen * experts.inner + experts.shared);
        self.norm(count, module);
        self.rotation(count, module);
        self.norm(count, module);
        for [reduction, columns] in self.of.products(inner).into_iter().skip(1).step_by(2) {
            self.linear(count, module, Linear { rows, reduction, columns });
        }
        self.activation(count, module, rows * inner, false);
    }

    pub(super) fn forward(&mut self) {
        let (tokens, table) = (vec![self.step.batch, self.step.length], vec![self.of.vocabulary, self.of.width]);
        let stream = self.stream();
        self.add(1, "embedding", "aten::embedding", vec![table, tokens], vec![stream]);
        self.layers();
        self.norm(1, "norm");
        let head = self.head();
        self.linear(1, "head", head);
        let logits = vec![head.rows, head.columns];
        if self.step.is_compiled {
            self.add(1, "loss", "triton_poi_fused", vec![vec![head.rows * head.columns]], vec![vec![2]]);
            return;
        }
        let wide = [(&logits, Some(&DType::Float32))];
        let made = self.add(1, "loss", "aten::_to_copy", vec![logits.clone()], vec![logits.clone()]);
        note_dtypes(&mut made.attributes, OUTPUT_DTYPES, Some(&DType::Bfloat16), wide.into_iter());
        self.add(1, "loss", "aten::_log_softmax", vec![logits.clone()], vec![logits]).dtype = Some(DType::Float32);
    }

    fn head(&self) -> Linear {
        Linear { rows: self.tokens(), reduction: self.of.width, columns: self.of.vocabulary }
    }

    pub(super) fn backward(&mut self) {
        self.phase = Phase::Backward;
        let head = self.head();
        let logits = vec![head.rows, head.columns];
        let elements = head.rows * head.columns;
        if self.step.is_compiled {
            self.add(1, "loss", "triton_poi_fused", vec![vec![2 * elements]], vec![vec![elements]]);
        } else {
            let inputs = vec![logits.clone(), logits.clone()];
            let made = self.add(1, "loss", "aten::_log_softmax_backward_data", inputs, vec![logits.clone()]);
            made.dtype = Some(DType::Float32);
            let narrow = [(&logits, Some(&DType::Bfloat16))];
            let made = self.add(1, "loss", "aten::_to_copy", vec![logits.clone()], vec![logits.clone()]);
            made.dtype = Some(DType::Float32);
            note_dtypes(&mut made.attributes, OUTPUT_DTYPES, Some(&DType::Float32), narrow.into_iter());
        }
        self.linear_backward(1, "head", head);
        self.norm_backward(1, "norm");
        match self.step.recompute {
            Recompute::Full => self.layers(),
            Recompute::Operators => self.operators(self.of.layers),
            Recompute::None | Recompute::Selective => {}
        }
        for (count, experts) in self.parts().into_iter().rev() {
            let [norm, attention, behind, inner] =
                ["input_norm", "attention", "inner_norm", "inner"].map(Self::of_layers);
            match experts {
                Some(experts) => self.experts(count, experts, true),
                None => self.dense_backward(count, &inner, self.of.inner),
            }
            self.norm_backward(count, &behind);
            let output = self.output();
            self.linear_backward(count, &attention, output);
            if self.step.recompute == Recompute::Selective {
                self.attention(count, &attention);
            }
            self.attention_backward(count, &attention);
            self.rotation(count, &attention);
            for linear in self.projections().into_iter().rev() {
                self.linear_backward(count, &attention, linear);
            }
            self.norm_backward(count, &norm);
        }
        let (stream, tokens) = (self.stream(), vec![self.step.batch, self.step.length]);
        let table = vec![self.of.vocabulary, self.of.width];
        self.add(1, "embedding", "aten::embedding_dense_backward", vec![stream, tokens], vec![table]);
    }

    /// Adam on 32-bit weights, which are then copied to 16 bits.
    pub(super) fn update(&mut self) {
        self.phase = Phase::Optimizer;
        let count = self.of.parameters()[0];
        let made = self.add(1, "", "aten::_fused_adamw_", vec![vec![count]; 4], Vec::new());
        made.dtype = Some(DType::Float32);
        let all = vec![vec![count]];
        let made = self.add(1, "", "aten::_to_copy", all.clone(), all);
        made.dtype = Some(DType::Float32);
        let narrow = vec![count];
        note_dtypes(
            &mut made.attributes,
            OUTPUT_DTYPES,
            Some(&DType::Float32),
            [(&narrow, Some(&DType::Bfloat16))].into_iter(),
        );
    }
}
