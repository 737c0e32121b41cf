//! Tables of measured operators: one operator, configuration and GPU per row.
//!
//! Reads two formats, both FP32 in CSV, compressed or not, distinguished by their headings:
//!
//! - `NeuSight`'s (`latency_ms`, `gpu` by slug, `split`): device time from events, forward pass, with the main kernel's
//!   launch if recorded;
//! - `MLPredict`'s (`ms_median`; `conv` and `dense`): host time of one run in `TensorFlow`. Only forward rows
//!   (`optimizer` none) are read. The time includes the activation, the bias and the host's overhead per run.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

use csv::StringRecord;

use super::decompress::Limit;
use super::files::{StoreError, open};
use habitat_base::units::{GpuSlug, Micros, most};
pub use habitat_prediction::measured::Split;
use habitat_step::profile::{Attribute, DType, Kernel, Operation, Phase, Precision};

/// One measurement.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// Measured operator.
    pub operation: Operation,
    /// TF32, which the element type does not show.
    pub precision: Option<Precision>,
    /// GPU of the measurement.
    pub gpu: GpuSlug,
    /// Measured time.
    pub time: Micros,
    /// Main kernel, with its launch if recorded.
    pub kernel: Kernel,
    /// Intended use by the authors.
    pub split: Split,
    /// Whether calls were queued ahead, so that the time is the device's alone. Otherwise it includes the launch by the
    /// host.
    pub queued: bool,
}

/// Operator tables in `NeuSight`'s format, by name.
pub const TABLES: [&str; 6] = ["linear", "bmm", "conv2d", "softmax", "layernorm", "elementwise"];

/// Path of a table in a folder: `dir/name.csv`, `.csv.gz` or `.csv.zst`.
pub fn find(dir: &Path, name: &str) -> Option<PathBuf> {
    [".csv", ".csv.gz", ".csv.zst"].iter().map(|ending| dir.join(format!("{name}{ending}"))).find(|path| path.exists())
}

/// Maximum number of rows of a table.
pub(super) const MOST_ROWS: usize = 1_000_000;

/// Reads all rows of a table in order; `name` is the name of the table, such as `linear`.
///
/// # Errors
/// [`StoreError`] with the file, the line and the problem.
pub fn read(path: &Path, name: &str) -> Result<Vec<Row>, StoreError> {
    let reader = open(path, Limit::TABLE).map_err(|error| StoreError::read(path, error))?;
    rows(reader, name).map_err(|problem| StoreError::content(path, problem))
}

fn rows(reader: impl Read, name: &str) -> Result<Vec<Row>, String> {
    let mut reader = csv::Reader::from_reader(reader);
    let headings = reader.headers().map_err(|error| error.to_string())?.clone();
    let mlpredict = headings.iter().any(|heading| heading == "ms_median");
    let mut rows = Vec::new();
    for (index, record) in reader.records().enumerate() {
        let problem = |what: String| format!("line {}: {what}", index + 2);
        let record = record.map_err(|error| problem(error.to_string()))?;
        let line = Line { headings: &headings, record: &record };
        let row = if mlpredict { line.mlpredict(name) } else { line.neusight(name).map(Some) };
        let row = row.map_err(problem)?;
        if let Some((field, what)) = row.as_ref().and_then(|row| row.operation.beyond()) {
            return Err(problem(format!("{field}: {what}")));
        }
        if rows.len() >= MOST_ROWS {
            return Err(problem(format!("more than {MOST_ROWS} rows; split the table")));
        }
        rows.extend(row);
    }
    Ok(rows)
}

/// Possible element types of a table, the default first.
const DTYPES: [DType; 5] = [DType::Float32, DType::Float16, DType::Bfloat16, DType::Float8E4m3, DType::Float8E5m2];
/// FP32 multiplied on tensor cores as TF32.
const TF32: &str = "tf32";

/// A line of a table without its time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableLine {
    /// Name of the table.
    pub table: &'static str,
    /// Name of the operator in the table.
    pub op: &'static str,
    /// The GPU.
    pub gpu: GpuSlug,
    /// Element type.
    pub dtype: String,
    /// Columns with sizes.
    pub sizes: Vec<(&'static str, u64)>,
}

impl TableLine {
    /// Heading line of the table.
    pub fn heading(&self) -> String {
        let sizes: Vec<&str> = self.sizes.iter().map(|(column, _)| *column).collect();
        format!("gpu,op,dtype,{},latency_ms\n", sizes.join(","))
    }

    /// Text of the line.
    pub fn text(&self) -> String {
        let sizes: Vec<String> = self.sizes.iter().map(|(_, value)| value.to_string()).collect();
        format!("{},{},{},{},\n", self.gpu, self.op, self.dtype, sizes.join(","))
    }
}

/// The line that [`read`] turns into `operation`; `None` if no table has such an operator.
pub fn line(operation: &Operation, precision: Option<Precision>, gpu: &GpuSlug) -> Option<TableLine> {
    let (table, op, sizes) = match (operation.name.as_str(), &operation.inputs[..]) {
        ("aten::linear", [left, right]) => {
            let (&[rows, reduction], &[columns, _]) = (&left[..], &right[..]) else { return None };
            ("linear", "linear", vec![("B", 1), ("M", rows), ("N", reduction), ("K", columns)])
        }
        ("aten::bmm", [left, right]) => {
            let (&[batch, rows, reduction], &[_, _, columns]) = (&left[..], &right[..]) else { return None };
            ("bmm", "bmm", vec![("B", batch), ("M", rows), ("N", reduction), ("K", columns)])
        }
        ("aten::softmax", [shape]) => ("softmax", "softmax", matrix(shape)?),
        ("aten::layer_norm", [shape]) => ("layernorm", "layernorm", matrix(shape)?),
        ("aten::add", [shape, _]) => ("elementwise", "add", matrix(shape)?),
        ("aten::conv2d", [input, weight]) => {
            let (&[batch, inside, image, _], &[outside, _, kernel, _]) = (&input[..], &weight[..]) else { return None };
            let attribute =
                |key: &str| -> Option<u64> { u64::try_from(*operation.attributes.get(key)?.as_ints()?.first()?).ok() };
            let sizes = vec![
                ("B", batch),
                ("in_channels", inside),
                ("out_channels", outside),
                ("kernel_size", kernel),
                ("image_size", image),
                ("stride", attribute("stride")?),
                ("padding", attribute("padding")?),
            ];
            ("conv2d", "conv2d", sizes)
        }
        _ => return None,
    };
    let dtype = operation.dtype.as_ref().map_or("float32", DType::name);
    let dtype = if precision == Some(Precision::Tf32) { TF32 } else { dtype };
    Some(TableLine { table, op, gpu: gpu.clone(), dtype: dtype.to_owned(), sizes })
}

fn matrix(shape: &[u64]) -> Option<Vec<(&'static str, u64)>> {
    let [rows, columns] = shape else { return None };
    Some(vec![("B", *rows), ("H", *columns)])
}

struct Line<'a> {
    headings: &'a StringRecord,
    record: &'a StringRecord,
}

impl Line<'_> {
    fn text(&self, key: &str) -> Option<&str> {
        self.headings.iter().position(|heading| heading == key).and_then(|place| self.record.get(place))
    }

    fn number(&self, key: &str) -> Result<f64, String> {
        let value = self.text(key).ok_or_else(|| format!("column {key} is missing"))?;
        value
            .parse::<f64>()
            .ok()
            .filter(|value| value.is_sign_positive() && *value <= most::ELEMENTS)
            .ok_or_else(|| format!("{key}: {value:?} is not a number from 0 to 1e15"))
    }

    fn size(&self, key: &str) -> Result<u64, String> {
        self.number(key).map(|value| value as u64)
    }

    fn neusight(&self, name: &str) -> Result<Row, String> {
        if self.text("latency_ms").is_some_and(|value| value.trim().is_empty()) {
            return Err("latency_ms is empty; write the measured time in milliseconds, or delete the line".to_owned());
        }
        let time = Micros::from_millis(self.number("latency_ms")?).map_err(|error| error.to_string())?;
        let gpu = GpuSlug::new(self.text("gpu").unwrap_or_default()).map_err(|error| error.to_string())?;
        let mut operation = self.operation(name, self.text("op").unwrap_or_default())?;
        let (dtype, precision) = self.dtype()?;
        operation.dtype = Some(dtype);
        let extent = |prefix: &str| -> Option<[u32; 3]> {
            let at = |axis: &str| {
                self.number(&format!("{prefix}_{axis}")).ok().map(|value| value as u32).filter(|&value| value > 0)
            };
            Some([at("x")?, at("y")?, at("z")?])
        };
        let mut kernel = kernel(self.text("kernel").unwrap_or_default(), time);
        kernel.grid = extent("grid").filter(|_| extent("block").is_some());
        kernel.block = extent("block").filter(|_| extent("grid").is_some());
        let split = match self.text("split") {
            Some("train") => Split::Train,
            Some("test") => Split::Test,
            _ => Split::Other,
        };
        Ok(Row { operation, precision, gpu, time, kernel, split, queued: false })
    }

    /// Element type; FP32 if the table has none.
    fn dtype(&self) -> Result<(DType, Option<Precision>), String> {
        let name = self.text("dtype").unwrap_or_default().trim();
        if name == TF32 {
            return Ok((DType::Float32, Some(Precision::Tf32)));
        }
        let known = DTYPES.into_iter().find(|dtype| dtype.name() == name || name.is_empty());
        known.map(|dtype| (dtype, None)).ok_or_else(|| {
            let names: Vec<String> = DTYPES.iter().map(ToString::to_string).collect();
            format!("dtype: {name:?} is not one of {}, {TF32}", names.join(", "))
        })
    }

    /// Operation of a row.
    fn operation(&self, name: &str, op: &str) -> Result<Operation, String> {
        Ok(match name {
            "elementwise" => {
                let shape = vec![self.size("B")?, self.size("H")?];
                // A trailing u marks an operation on a tensor and a scalar; relu and similar ones also have one input.
                let one_input = op.ends_with('u') || op == "tanh";
                let bare = if op == "relu" || op == "gelu" { op } else { op.trim_end_matches('u') };
                let inputs = if one_input { vec![shape.clone()] } else { vec![shape.clone(), shape.clone()] };
                forward(&format!("aten::{bare}"), inputs, vec![shape])
            }
            "softmax" | "layernorm" => {
                let shape = vec![self.size("B")?, self.size("H")?];
                let name = if name == "softmax" { "aten::softmax" } else { "aten::layer_norm" };
                forward(name, vec![shape.clone()], vec![shape])
            }
            "linear" => {
                let (rows, reduction, columns) = (self.size("M")?, self.size("N")?, self.size("K")?);
                forward("aten::linear", vec![vec![rows, reduction], vec![columns, reduction]], Vec::new())
            }
            "bmm" => {
                let (batch, reduction) = (self.size("B")?, self.size("N")?);
                let inputs = vec![vec![batch, self.size("M")?, reduction], vec![batch, reduction, self.size("K")?]];
                forward("aten::bmm", inputs, Vec::new())
            }
            _ => {
                let (image, kernel) = (self.size("image_size")?, self.size("kernel_size")?);
                let (stride, padding) = (self.size("stride")?, self.size("padding")?);
                let out = (image + 2 * padding).saturating_sub(kernel) / stride.max(1) + 1;
                let channels = [self.size("in_channels")?, self.size("out_channels")?];
                convolution(self.size("B")?, channels, [image, kernel, out], [stride, padding])
            }
        })
    }

    /// A forward row; `None` for a whole training step.
    fn mlpredict(&self, name: &str) -> Result<Option<Row>, String> {
        if self.text("optimizer") != Some("none") {
            return Ok(None);
        }
        let time = Micros::from_millis(self.number("ms_median")?).map_err(|error| error.to_string())?;
        let batch = self.size("batchsize")?;
        let operation = if name == "dense" {
            let (inputs, outputs) = (self.size("dim_input")?, self.size("dim_output")?);
            forward("aten::linear", vec![vec![batch, inputs], vec![outputs, inputs]], Vec::new())
        } else {
            let (image, kernel) = (self.size("matsize")?, self.size("kernelsize")?.max(1));
            let stride = self.size("strides")?.max(1);
            // TensorFlow's rules: SAME may pad one more at the end than at the beginning.
            let (out, padding) = if self.size("padding")? == 1 {
                let out = image.div_ceil(stride);
                (out, (out.saturating_sub(1) * stride + kernel).saturating_sub(image).div_ceil(2))
            } else {
                ((image + 1).saturating_sub(kernel).div_ceil(stride), 0)
            };
            let channels = [self.size("channels_in")?, self.size("channels_out")?];
            convolution(batch, channels, [image, kernel, out], [stride, padding])
        };
        let gpu = self.text("gpu").unwrap_or_default();
        let gpu = GpuSlug::new(mlpredict_slug(gpu)).map_err(|error| error.to_string())?;
        let kernel = kernel("", time);
        Ok(Some(Row { operation, precision: None, gpu, time, kernel, split: Split::Other, queued: false }))
    }
}

/// GPU of a name. If the tables have one name for several GPUs, assumes the most common of 2018.
fn mlpredict_slug(name: &str) -> String {
    match name {
        "GTX1080Ti" => "gtx-1080-ti".to_owned(),
        "P100" => "p100-pcie-16gb".to_owned(),
        "V100" => "v100-sxm2-16gb".to_owned(),
        other => other.to_lowercase(),
    }
}

pub(super) fn kernel(name: &str, duration: Micros) -> Kernel {
    Kernel {
        name: name.to_owned(),
        count: 1,
        duration,
        grid: None,
        block: None,
        registers_per_thread: None,
        static_shared_memory_bytes: None,
        dynamic_shared_memory_bytes: None,
        flops: None,
        dram_bytes: None,
    }
}

/// A square convolution: channels in and out; extents of image, kernel and result.
fn convolution(batch: u64, channels: [u64; 2], extents: [u64; 3], [stride, padding]: [u64; 2]) -> Operation {
    let ([inputs, outputs], [image, kernel, out]) = (channels, extents);
    let mut operation = forward(
        "aten::conv2d",
        vec![vec![batch, inputs, image, image], vec![outputs, inputs, kernel, kernel]],
        vec![vec![batch, outputs, out, out]],
    );
    for (key, value) in [("stride", stride), ("padding", padding)] {
        operation.attributes.insert(key.to_owned(), Attribute::List(vec![Attribute::Int(value as i64); 2]));
    }
    operation
}

pub(super) fn forward(name: &str, inputs: Vec<Vec<u64>>, outputs: Vec<Vec<u64>>) -> Operation {
    Operation {
        name: name.to_owned(),
        module: None,
        phase: Phase::Forward,
        count: 1,
        inputs,
        outputs,
        dtype: Some(DType::Float32),
        attributes: BTreeMap::new(),
        device_time: None,
        cpu_time: None,
        kernels: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_the_first_form() {
        let table = "split,gpu,op,B,M,N,K,latency_ms,kernel,grid_x,grid_y,grid_z,block_x,block_y,block_z\n\
                     train,t4,linear,1,58,13,141,0.05,gemm,5,1,1,256,1,1\n\
                     test,h100-sxm5-80gb,linear,1,8,16,32,0.25,gemm,0,1,1,256,1,1\n";
        let rows = rows(table.as_bytes(), "linear").unwrap();
        assert_eq!(rows[0].operation.inputs, [vec![58, 13], vec![141, 13]]);
        assert_eq!((rows[0].split, rows[0].kernel.grid), (Split::Train, Some([5, 1, 1])));
        assert_eq!((rows[1].split, rows[1].kernel.grid), (Split::Test, None));
        assert_eq!(rows[1].time.get(), 250.0);
        let table = "gpu,op,B,in_channels,out_channels,kernel_size,image_size,stride,padding,latency_ms\n\
                     p4,conv,2,3,64,7,224,2,3,1.5\n";
        let rows = super::rows(table.as_bytes(), "conv2d").unwrap();
        assert_eq!(rows[0].operation.outputs, [vec![2, 64, 112, 112]]);
        assert_eq!(rows[0].operation.attributes["stride"].as_ints(), Some(vec![2, 2]));
        assert_eq!(rows[0].split, Split::Other);
    }

    #[test]
    fn rows_of_the_second_form() {
        let head = "gpu,batchsize,matsize,kernelsize,channels_in,channels_out,strides,padding,use_bias,activation,optimizer,ms_median\n";
        let table = format!(
            "{head}V100,9,71,4,100,97,2,0,1,relu,sgd,3.4\nV100,9,71,4,100,97,2,0,1,relu,none,1.5\nK40,2,7,3,4,8,2,1,0,none,none,0.5\n"
        );
        let rows = rows(table.as_bytes(), "conv").unwrap();
        assert_eq!(rows.len(), 2);
        // VALID: ⌈(71 − 4 + 1) / 2⌉; SAME: ⌈7 / 2⌉, one on each side.
        assert_eq!(rows[0].operation.outputs, [vec![9, 97, 34, 34]]);
        assert_eq!(rows[1].operation.outputs, [vec![2, 8, 4, 4]]);
        assert_eq!(rows[1].operation.attributes["padding"].as_ints(), Some(vec![1, 1]));
        assert_eq!((rows[0].gpu.as_str(), rows[1].gpu.as_str()), ("v100-sxm2-16gb", "k40"));
        let table = "gpu,batchsize,dim_input,dim_output,optimizer,ms_median\nM60,30,3263,3675,none,2.3\n";
        assert_eq!(super::rows(table.as_bytes(), "dense").unwrap()[0].operation.inputs, [[30, 3263], [3675, 3263]]);
    }

    #[test]
    fn lines_to_fill_in_are_read_back() {
        for (name, table) in [
            ("linear", "gpu,op,dtype,B,M,N,K,latency_ms\nt4,linear,bfloat16,1,58,13,141,"),
            ("bmm", "gpu,op,dtype,B,M,N,K,latency_ms\nt4,bmm,float32,4,5,6,7,"),
            ("softmax", "gpu,op,dtype,B,H,latency_ms\nt4,softmax,float16,8,9,"),
            ("layernorm", "gpu,op,dtype,B,H,latency_ms\nt4,layernorm,float32,8,9,"),
            ("elementwise", "gpu,op,dtype,B,H,latency_ms\nt4,add,float32,8,9,"),
            ("linear", "gpu,op,dtype,B,M,N,K,latency_ms\nt4,linear,tf32,1,58,13,141,"),
            (
                "conv2d",
                "gpu,op,dtype,B,in_channels,out_channels,kernel_size,image_size,stride,padding,latency_ms\n\
                 t4,conv2d,float32,2,3,64,7,224,2,3,",
            ),
        ] {
            let empty = rows(format!("{table}\n").as_bytes(), name).unwrap_err();
            assert!(empty.starts_with("line 2: latency_ms is empty"), "{empty}");
            let row = rows(format!("{table}0.5\n").as_bytes(), name).unwrap().remove(0);
            let line = line(&row.operation, row.precision, &row.gpu).unwrap();
            assert_eq!((line.table, line.heading() + &line.text()), (name, format!("{table}\n")));
        }
        let other = "gpu,op,dtype,B,H,latency_ms\nt4,softmax,float12,8,9,1\n";
        assert!(
            rows(other.as_bytes(), "softmax").unwrap_err().contains("line 2: dtype: \"float12\" is not one of float32")
        );
    }

    #[test]
    fn what_is_wrong_is_named_by_line() {
        let message = |table: &str| rows(table.as_bytes(), "linear").unwrap_err();
        assert_eq!(
            message("gpu,op,B,M,N,K,latency_ms\nt4,linear,1,2,3,x,1\n"),
            "line 2: K: \"x\" is not a number from 0 to 1e15"
        );
        assert_eq!(message("gpu,op,B,M,N,latency_ms\nt4,linear,1,2,3,1\n"), "line 2: column K is missing");
        assert!(
            message("gpu,op,B,M,N,K,latency_ms\nT 4,linear,1,2,3,4,1\n").contains("line 2: \"T 4\" is not a GPU slug")
        );
        assert_eq!(
            message("gpu,op,B,M,N,K,latency_ms\nt4,linear,1,2,3,4,-1\n"),
            "line 2: latency_ms: \"-1\" is not a number from 0 to 1e15"
        );
    }
}
