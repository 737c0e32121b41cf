//! Networks and plain tensors in one safetensors file with string metadata.
//!
//! The format (<https://github.com/huggingface/safetensors>): eight bytes of header length, a JSON header, the numbers,
//! little-endian. A network `n` is stored as tensors `n.mean`, `n.scale`, `n.0.weight`, `n.0.bias`, `n.1.weight` …, and
//! the metadata entry `network.n` describes its layers, such as `relu 15 64 64 1`. Equal contents give equal bytes.

use std::collections::BTreeMap;

use safetensors::{Dtype, SafeTensors};
use serde_json::{Map, Value, json};

use super::mlp::{Activation, Architecture, Mlp, ModelError};

/// Tensor with its shape and its numbers in row-major order.
#[derive(Debug, Clone, PartialEq)]
pub struct Plain {
    /// Extents.
    pub shape: Vec<usize>,
    /// Numbers; their count is the product of the extents.
    pub values: Vec<f32>,
}

/// Contents of one file.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Bundle {
    /// Networks by name.
    pub networks: BTreeMap<String, Mlp>,
    /// Other tensors by name.
    pub tensors: BTreeMap<String, Plain>,
    /// Other metadata, such as the command that made the weights.
    pub metadata: BTreeMap<String, String>,
}

const NETWORK: &str = "network.";
const METADATA: &str = "__metadata__";

impl Bundle {
    /// Serializes the bundle.
    ///
    /// # Errors
    /// [`ModelError`] if a name is used twice, or the count of a tensor's numbers does not match its shape.
    pub fn to_bytes(&self) -> Result<Vec<u8>, ModelError> {
        let mut metadata = self.metadata.clone();
        let mut tensors = self.tensors.clone();
        for (name, network) in &self.networks {
            let form = network.architecture();
            let sizes: Vec<String> = form.sizes.iter().map(ToString::to_string).collect();
            let description = format!("{} {}", form.activation.name(), sizes.join(" "));
            let mut twice = metadata.insert(format!("{NETWORK}{name}"), description).is_some();
            let parameters = network.parameters()?;
            let mut rest = &parameters[..];
            for (part, shape) in parts(name, form) {
                let (values, after) = match part.rsplit('.').next() {
                    Some("mean") => (network.normalisation().0, rest),
                    Some("scale") => (network.normalisation().1, rest),
                    _ => rest.split_at(shape.iter().product()),
                };
                rest = after;
                twice |= tensors.insert(part, Plain { shape, values: values.to_vec() }).is_some();
            }
            if twice {
                return Err(ModelError::Form(format!("two contents are named {name:?}")));
            }
        }
        write(&tensors, &metadata)
    }

    /// Parses arbitrary bytes.
    ///
    /// # Errors
    /// [`ModelError`] naming the tensor and the problem.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, ModelError> {
        let form = |error: safetensors::SafeTensorError| ModelError::Form(error.to_string());
        let (_, header) = SafeTensors::read_metadata(bytes).map_err(form)?;
        let file = SafeTensors::deserialize(bytes).map_err(form)?;
        let mut tensors = BTreeMap::new();
        for (name, view) in file.iter() {
            if view.dtype() != Dtype::F32 {
                return Err(ModelError::Form(format!("tensor {name:?} is {:?}, expected F32", view.dtype())));
            }
            let values: Vec<f32> = view
                .data()
                .chunks_exact(4)
                .map(|bytes| f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
                .collect();
            if !values.iter().all(|value| value.is_finite()) {
                return Err(ModelError::NotFinite(name.to_owned()));
            }
            tensors.insert(name.to_owned(), Plain { shape: view.shape().to_vec(), values });
        }
        let mut bundle = Self {
            tensors,
            metadata: header.metadata().clone().unwrap_or_default().into_iter().collect(),
            ..Self::default()
        };
        let described: Vec<(String, String)> = bundle
            .metadata
            .iter()
            .filter_map(|(key, form)| Some((key.strip_prefix(NETWORK)?.to_owned(), form.clone())))
            .collect();
        for (name, form) in described {
            let network = bundle.take_network(&name, &form)?;
            bundle.metadata.remove(&format!("{NETWORK}{name}"));
            bundle.networks.insert(name, network);
        }
        Ok(bundle)
    }

    /// Returns the network of that name.
    ///
    /// # Errors
    /// [`ModelError::Missing`] with the name.
    pub fn network(&self, name: &str) -> Result<&Mlp, ModelError> {
        self.networks.get(name).ok_or_else(|| ModelError::Missing(name.to_owned()))
    }

    /// Returns the numbers of the tensor of that name if it has that shape.
    ///
    /// # Errors
    /// [`ModelError::Missing`] or [`ModelError::Shape`].
    pub fn tensor(&self, name: &str, shape: &[usize]) -> Result<&[f32], ModelError> {
        let plain = self.tensors.get(name).ok_or_else(|| ModelError::Missing(name.to_owned()))?;
        if plain.shape != shape {
            let (name, expected) = (name.to_owned(), shape.to_vec());
            return Err(ModelError::Shape { name, expected, found: plain.shape.clone() });
        }
        Ok(&plain.values)
    }

    fn take_network(&mut self, name: &str, form: &str) -> Result<Mlp, ModelError> {
        let mut words = form.split_whitespace();
        let activation = words.next().and_then(Activation::named);
        let sizes: Option<Vec<usize>> = words.map(|word| word.parse().ok()).collect();
        let (Some(activation), Some(sizes)) = (activation, sizes) else {
            return Err(ModelError::Form(format!(
                "network {name:?} is described as {form:?}, expected \"relu 15 64 1\""
            )));
        };
        let architecture = Architecture { sizes, activation };
        architecture.check()?;
        let (mut mean, mut scale, mut parameters) = (Vec::new(), Vec::new(), Vec::new());
        for (part, shape) in parts(name, &architecture) {
            let values = self.tensor(&part, &shape)?;
            match part.rsplit('.').next() {
                Some("mean") => mean.extend_from_slice(values),
                Some("scale") => scale.extend_from_slice(values),
                _ => parameters.extend_from_slice(values),
            }
            self.tensors.remove(&part);
        }
        Mlp::from_parameters(architecture, mean, scale, &parameters)
    }
}

/// Tensors of a network with their shapes, in the order of its parameters.
fn parts(name: &str, architecture: &Architecture) -> Vec<(String, Vec<usize>)> {
    let inputs = architecture.inputs();
    let mut parts = vec![(format!("{name}.mean"), vec![inputs]), (format!("{name}.scale"), vec![inputs])];
    for (index, (inputs, outputs)) in architecture.layers().enumerate() {
        parts.push((format!("{name}.{index}.weight"), vec![inputs, outputs]));
        parts.push((format!("{name}.{index}.bias"), vec![outputs]));
    }
    parts
}

fn write(tensors: &BTreeMap<String, Plain>, metadata: &BTreeMap<String, String>) -> Result<Vec<u8>, ModelError> {
    let mut header = Map::new();
    header.insert(METADATA.to_owned(), json!(metadata));
    let mut end = 0_usize;
    for (name, Plain { shape, values }) in tensors {
        if shape.iter().product::<usize>() != values.len() {
            let found = vec![values.len()];
            return Err(ModelError::Shape { name: name.clone(), expected: shape.clone(), found });
        }
        let start = end;
        end += values.len() * 4;
        let entry: Value = json!({"dtype": "F32", "shape": shape, "data_offsets": [start, end]});
        if name == METADATA || header.insert(name.clone(), entry).is_some() {
            return Err(ModelError::Form(format!("two contents are named {name:?}")));
        }
    }
    let mut header = Value::Object(header).to_string().into_bytes();
    // The numbers start at a multiple of eight bytes.
    header.resize(header.len().next_multiple_of(8), b' ');
    let mut bytes = Vec::with_capacity(8 + header.len() + end);
    bytes.extend_from_slice(&(header.len() as u64).to_le_bytes());
    bytes.extend_from_slice(&header);
    for plain in tensors.values() {
        bytes.extend(plain.values.iter().flat_map(|value| value.to_le_bytes()));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bundle() -> Bundle {
        let network = |sizes: &[usize], activation, seed| {
            Mlp::new(Architecture { sizes: sizes.to_vec(), activation }, seed).unwrap()
        };
        Bundle {
            networks: BTreeMap::from([
                ("gemm".to_owned(), network(&[15, 64, 64, 1], Activation::Relu, 1)),
                ("conv.small".to_owned(), network(&[3, 5, 2], Activation::Silu, 2)),
            ]),
            tensors: BTreeMap::from([
                ("offsets".to_owned(), Plain { shape: vec![2, 2], values: vec![0.5, -1.0, 0.0, f32::MIN_POSITIVE] }),
                ("none".to_owned(), Plain { shape: vec![0], values: Vec::new() }),
            ]),
            metadata: BTreeMap::from([("command".to_owned(), "train \"é\"\n".to_owned())]),
        }
    }

    #[test]
    fn what_is_written_is_read_back() {
        let bytes = bundle().to_bytes().unwrap();
        assert_eq!(Bundle::from_bytes(&bytes).unwrap(), bundle());
        assert_eq!(bundle().to_bytes().unwrap(), bytes);
        assert_eq!(Bundle::from_bytes(&Bundle::default().to_bytes().unwrap()).unwrap(), Bundle::default());
    }

    #[test]
    fn what_is_wrong_is_named() {
        let broken = |change: &dyn Fn(&mut Bundle)| {
            let mut plain = Bundle::from_bytes(&bundle().to_bytes().unwrap()).unwrap();
            // Networks as plain tensors, so that tests can damage them.
            let tensors = SafeTensorsParts::of(&bundle());
            (plain.networks, plain.tensors, plain.metadata) = (BTreeMap::new(), tensors.0, tensors.1);
            change(&mut plain);
            Bundle::from_bytes(&plain.to_bytes().unwrap()).unwrap_err().to_string()
        };
        let message = broken(&|bundle| {
            bundle.tensors.remove("gemm.1.bias");
        });
        assert_eq!(message, "tensor \"gemm.1.bias\" is missing");
        let message = broken(&|bundle| {
            bundle.tensors.insert("gemm.mean".to_owned(), Plain { shape: vec![2], values: vec![0.0; 2] });
        });
        assert_eq!(message, "tensor \"gemm.mean\" has shape [2], expected [15]");
        let message = broken(&|bundle| bundle.tensors.get_mut("offsets").unwrap().values[0] = f32::NAN);
        assert!(message.contains("\"offsets\"") && message.contains("not finite"), "{message}");
        for form in ["", "relu", "relu 3", "relu 3 -1", "tanh 3 1", "relu 3 0 1", "relu 99999999 1"] {
            let message = broken(&|bundle| {
                bundle.metadata.insert("network.gemm".to_owned(), form.to_owned());
            });
            assert!(message.contains("described as") || message.contains("layer sizes"), "{form}: {message}");
        }
        assert!(Bundle::from_bytes(b"PK").unwrap_err().to_string().contains("safetensors"));
        let mut wrong = bundle();
        wrong.tensors.get_mut("offsets").unwrap().shape = vec![3];
        assert!(matches!(wrong.to_bytes(), Err(ModelError::Shape { .. })));
    }

    /// Tensors and metadata of a written bundle, with networks still separate tensors.
    struct SafeTensorsParts(BTreeMap<String, Plain>, BTreeMap<String, String>);

    impl SafeTensorsParts {
        fn of(bundle: &Bundle) -> Self {
            let bytes = bundle.to_bytes().unwrap();
            let (_, header) = SafeTensors::read_metadata(&bytes).unwrap();
            let tensors = SafeTensors::deserialize(&bytes).unwrap();
            let plain = tensors.iter().map(|(name, view)| {
                let values = view.data().chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect();
                (name.to_owned(), Plain { shape: view.shape().to_vec(), values })
            });
            Self(plain.collect(), header.metadata().clone().unwrap().into_iter().collect())
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, rng_seed: proptest::test_runner::RngSeed::Fixed(7), ..ProptestConfig::default() })]

        #[test]
        fn damaged_bytes_never_panic(place in 0_usize..20_000, byte in any::<u8>(), cut in 0_usize..20_000) {
            let mut bytes = bundle().to_bytes().unwrap();
            // Half of the damage goes into the header, which is most sensitive.
            let place = if place % 2 == 0 { place % 900 } else { place % bytes.len() };
            bytes[place] = byte;
            let _ = Bundle::from_bytes(&bytes);
            bytes.truncate(cut % bytes.len());
            prop_assert!(Bundle::from_bytes(&bytes).is_err());
        }

        #[test]
        fn any_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), length in 0_u64..300) {
            let _ = Bundle::from_bytes(&bytes);
            let mut headed = length.to_le_bytes().to_vec();
            headed.extend_from_slice(br#"{"a":{"dtype":"F32","shape":[18446744073709551615,2],"data_offsets":[0,8]}}"#);
            headed.extend(bytes);
            prop_assert!(Bundle::from_bytes(&headed).is_err() || length == 0);
        }
    }
}
