// Generated from ONNX "classifier.onnx" by burn-onnx
extern crate alloc;
use burn::prelude::*;
use burn::nn::BatchNorm;
use burn::nn::BatchNormConfig;
use burn::nn::Linear;
use burn::nn::LinearConfig;
use burn::nn::PaddingConfig2d;
use burn::nn::conv::Conv2d;
use burn::nn::conv::Conv2dConfig;
use burn::nn::pool::AdaptiveAvgPool2d;
use burn::nn::pool::AdaptiveAvgPool2dConfig;
use burn::nn::pool::MaxPool2d;
use burn::nn::pool::MaxPool2dConfig;
use burn::tensor::Bytes;
use burn_store::BurnpackStore;
use burn_store::ModuleSnapshot;


#[derive(Module, Debug)]
pub struct Submodule1 {
    conv2d1: Conv2d,
    batchnormalization1: BatchNorm,
    constant215: burn::module::Param<Tensor<1>>,
    constant214: burn::module::Param<Tensor<1>>,
    conv2d2: Conv2d,
    batchnormalization2: BatchNorm,
    conv2d3: Conv2d,
    batchnormalization3: BatchNorm,
    globalaveragepool1: AdaptiveAvgPool2d,
    conv2d4: Conv2d,
    reshape1: burn::module::Param<Tensor<4>>,
    conv2d5: Conv2d,
    reshape2: burn::module::Param<Tensor<4>>,
    conv2d6: Conv2d,
    batchnormalization4: BatchNorm,
    conv2d7: Conv2d,
    batchnormalization5: BatchNorm,
    conv2d8: Conv2d,
    batchnormalization6: BatchNorm,
    conv2d9: Conv2d,
    batchnormalization7: BatchNorm,
    conv2d10: Conv2d,
    batchnormalization8: BatchNorm,
    conv2d11: Conv2d,
    batchnormalization9: BatchNorm,
    conv2d12: Conv2d,
    batchnormalization10: BatchNorm,
    conv2d13: Conv2d,
    batchnormalization11: BatchNorm,
    constant221: burn::module::Param<Tensor<1>>,
    constant220: burn::module::Param<Tensor<1>>,
    conv2d14: Conv2d,
    batchnormalization12: BatchNorm,
    constant225: burn::module::Param<Tensor<1>>,
    constant224: burn::module::Param<Tensor<1>>,
    globalaveragepool2: AdaptiveAvgPool2d,
    conv2d15: Conv2d,
    reshape3: burn::module::Param<Tensor<4>>,
    conv2d16: Conv2d,
    reshape4: burn::module::Param<Tensor<4>>,
    #[module(skip)]
    device: Device,
}
impl Submodule1 {
    #[allow(unused_variables)]
    pub fn new(device: &Device) -> Self {
        let conv2d1 = Conv2dConfig::new([3, 8], [3, 3])
            .with_stride([2, 2])
            .with_padding(PaddingConfig2d::Explicit(1, 1, 1, 1))
            .with_dilation([1, 1])
            .with_groups(1)
            .with_bias(false)
            .init(device);
        let batchnormalization1 = BatchNormConfig::new(8)
            .with_epsilon(0.000009999999747378752f64)
            .with_momentum(0.8999999761581421f64)
            .init(device);
        let constant215: burn::module::Param<Tensor<1>> = burn::module::Param::uninitialized(
            burn::module::ParamId::new(),
            move |device, _require_grad| Tensor::<
                1,
            >::from_data(
                burn::tensor::TensorData::from([3f64]),
                (device, burn::tensor::DType::F32),
            ),
            device.clone(),
            false,
            [1].into(),
        );
        let constant214: burn::module::Param<Tensor<1>> = burn::module::Param::uninitialized(
            burn::module::ParamId::new(),
            move |device, _require_grad| Tensor::<
                1,
            >::from_data(
                burn::tensor::TensorData::from([6f64]),
                (device, burn::tensor::DType::F32),
            ),
            device.clone(),
            false,
            [1].into(),
        );
        let conv2d2 = Conv2dConfig::new([8, 8], [1, 1])
            .with_stride([1, 1])
            .with_padding(PaddingConfig2d::Valid)
            .with_dilation([1, 1])
            .with_groups(1)
            .with_bias(false)
            .init(device);
        let batchnormalization2 = BatchNormConfig::new(8)
            .with_epsilon(0.000009999999747378752f64)
            .with_momentum(0.8999999761581421f64)
            .init(device);
        let conv2d3 = Conv2dConfig::new([8, 8], [3, 3])
            .with_stride([2, 1])
            .with_padding(PaddingConfig2d::Explicit(1, 1, 1, 1))
            .with_dilation([1, 1])
            .with_groups(8)
            .with_bias(false)
            .init(device);
        let batchnormalization3 = BatchNormConfig::new(8)
            .with_epsilon(0.000009999999747378752f64)
            .with_momentum(0.8999999761581421f64)
            .init(device);
        let globalaveragepool1 = AdaptiveAvgPool2dConfig::new([1, 1]).init();
        let conv2d4 = Conv2dConfig::new([8, 2], [1, 1])
            .with_stride([1, 1])
            .with_padding(PaddingConfig2d::Valid)
            .with_dilation([1, 1])
            .with_groups(1)
            .with_bias(false)
            .init(device);
        let reshape1: burn::module::Param<Tensor<4>> = burn::module::Param::uninitialized(
            burn::module::ParamId::new(),
            move |device, _require_grad| Tensor::<
                4,
            >::zeros([1, 2, 1, 1], (device, burn::tensor::DType::F32)),
            device.clone(),
            false,
            [1, 2, 1, 1].into(),
        );
        let conv2d5 = Conv2dConfig::new([2, 8], [1, 1])
            .with_stride([1, 1])
            .with_padding(PaddingConfig2d::Valid)
            .with_dilation([1, 1])
            .with_groups(1)
            .with_bias(false)
            .init(device);
        let reshape2: burn::module::Param<Tensor<4>> = burn::module::Param::uninitialized(
            burn::module::ParamId::new(),
            move |device, _require_grad| Tensor::<
                4,
            >::zeros([1, 8, 1, 1], (device, burn::tensor::DType::F32)),
            device.clone(),
            false,
            [1, 8, 1, 1].into(),
        );
        let conv2d6 = Conv2dConfig::new([8, 8], [1, 1])
            .with_stride([1, 1])
            .with_padding(PaddingConfig2d::Valid)
            .with_dilation([1, 1])
            .with_groups(1)
            .with_bias(false)
            .init(device);
        let batchnormalization4 = BatchNormConfig::new(8)
            .with_epsilon(0.000009999999747378752f64)
            .with_momentum(0.8999999761581421f64)
            .init(device);
        let conv2d7 = Conv2dConfig::new([8, 24], [1, 1])
            .with_stride([1, 1])
            .with_padding(PaddingConfig2d::Valid)
            .with_dilation([1, 1])
            .with_groups(1)
            .with_bias(false)
            .init(device);
        let batchnormalization5 = BatchNormConfig::new(24)
            .with_epsilon(0.000009999999747378752f64)
            .with_momentum(0.8999999761581421f64)
            .init(device);
        let conv2d8 = Conv2dConfig::new([24, 24], [3, 3])
            .with_stride([2, 1])
            .with_padding(PaddingConfig2d::Explicit(1, 1, 1, 1))
            .with_dilation([1, 1])
            .with_groups(24)
            .with_bias(false)
            .init(device);
        let batchnormalization6 = BatchNormConfig::new(24)
            .with_epsilon(0.000009999999747378752f64)
            .with_momentum(0.8999999761581421f64)
            .init(device);
        let conv2d9 = Conv2dConfig::new([24, 8], [1, 1])
            .with_stride([1, 1])
            .with_padding(PaddingConfig2d::Valid)
            .with_dilation([1, 1])
            .with_groups(1)
            .with_bias(false)
            .init(device);
        let batchnormalization7 = BatchNormConfig::new(8)
            .with_epsilon(0.000009999999747378752f64)
            .with_momentum(0.8999999761581421f64)
            .init(device);
        let conv2d10 = Conv2dConfig::new([8, 32], [1, 1])
            .with_stride([1, 1])
            .with_padding(PaddingConfig2d::Valid)
            .with_dilation([1, 1])
            .with_groups(1)
            .with_bias(false)
            .init(device);
        let batchnormalization8 = BatchNormConfig::new(32)
            .with_epsilon(0.000009999999747378752f64)
            .with_momentum(0.8999999761581421f64)
            .init(device);
        let conv2d11 = Conv2dConfig::new([32, 32], [3, 3])
            .with_stride([1, 1])
            .with_padding(PaddingConfig2d::Explicit(1, 1, 1, 1))
            .with_dilation([1, 1])
            .with_groups(32)
            .with_bias(false)
            .init(device);
        let batchnormalization9 = BatchNormConfig::new(32)
            .with_epsilon(0.000009999999747378752f64)
            .with_momentum(0.8999999761581421f64)
            .init(device);
        let conv2d12 = Conv2dConfig::new([32, 8], [1, 1])
            .with_stride([1, 1])
            .with_padding(PaddingConfig2d::Valid)
            .with_dilation([1, 1])
            .with_groups(1)
            .with_bias(false)
            .init(device);
        let batchnormalization10 = BatchNormConfig::new(8)
            .with_epsilon(0.000009999999747378752f64)
            .with_momentum(0.8999999761581421f64)
            .init(device);
        let conv2d13 = Conv2dConfig::new([8, 32], [1, 1])
            .with_stride([1, 1])
            .with_padding(PaddingConfig2d::Valid)
            .with_dilation([1, 1])
            .with_groups(1)
            .with_bias(false)
            .init(device);
        let batchnormalization11 = BatchNormConfig::new(32)
            .with_epsilon(0.000009999999747378752f64)
            .with_momentum(0.8999999761581421f64)
            .init(device);
        let constant221: burn::module::Param<Tensor<1>> = burn::module::Param::uninitialized(
            burn::module::ParamId::new(),
            move |device, _require_grad| Tensor::<
                1,
            >::from_data(
                burn::tensor::TensorData::from([3f64]),
                (device, burn::tensor::DType::F32),
            ),
            device.clone(),
            false,
            [1].into(),
        );
        let constant220: burn::module::Param<Tensor<1>> = burn::module::Param::uninitialized(
            burn::module::ParamId::new(),
            move |device, _require_grad| Tensor::<
                1,
            >::from_data(
                burn::tensor::TensorData::from([6f64]),
                (device, burn::tensor::DType::F32),
            ),
            device.clone(),
            false,
            [1].into(),
        );
        let conv2d14 = Conv2dConfig::new([32, 32], [5, 5])
            .with_stride([2, 1])
            .with_padding(PaddingConfig2d::Explicit(2, 2, 2, 2))
            .with_dilation([1, 1])
            .with_groups(32)
            .with_bias(false)
            .init(device);
        let batchnormalization12 = BatchNormConfig::new(32)
            .with_epsilon(0.000009999999747378752f64)
            .with_momentum(0.8999999761581421f64)
            .init(device);
        let constant225: burn::module::Param<Tensor<1>> = burn::module::Param::uninitialized(
            burn::module::ParamId::new(),
            move |device, _require_grad| Tensor::<
                1,
            >::from_data(
                burn::tensor::TensorData::from([3f64]),
                (device, burn::tensor::DType::F32),
            ),
            device.clone(),
            false,
            [1].into(),
        );
        let constant224: burn::module::Param<Tensor<1>> = burn::module::Param::uninitialized(
            burn::module::ParamId::new(),
            move |device, _require_grad| Tensor::<
                1,
            >::from_data(
                burn::tensor::TensorData::from([6f64]),
                (device, burn::tensor::DType::F32),
            ),
            device.clone(),
            false,
            [1].into(),
        );
        let globalaveragepool2 = AdaptiveAvgPool2dConfig::new([1, 1]).init();
        let conv2d15 = Conv2dConfig::new([32, 8], [1, 1])
            .with_stride([1, 1])
            .with_padding(PaddingConfig2d::Valid)
            .with_dilation([1, 1])
            .with_groups(1)
            .with_bias(false)
            .init(device);
        let reshape3: burn::module::Param<Tensor<4>> = burn::module::Param::uninitialized(
            burn::module::ParamId::new(),
            move |device, _require_grad| Tensor::<
                4,
            >::zeros([1, 8, 1, 1], (device, burn::tensor::DType::F32)),
            device.clone(),
            false,
            [1, 8, 1, 1].into(),
        );
        let conv2d16 = Conv2dConfig::new([8, 32], [1, 1])
            .with_stride([1, 1])
            .with_padding(PaddingConfig2d::Valid)
            .with_dilation([1, 1])
            .with_groups(1)
            .with_bias(false)
            .init(device);
        let reshape4: burn::module::Param<Tensor<4>> = burn::module::Param::uninitialized(
            burn::module::ParamId::new(),
            move |device, _require_grad| Tensor::<
                4,
            >::zeros([1, 32, 1, 1], (device, burn::tensor::DType::F32)),
            device.clone(),
            false,
            [1, 32, 1, 1].into(),
        );
        Self {
            conv2d1,
            batchnormalization1,
            constant215,
            constant214,
            conv2d2,
            batchnormalization2,
            conv2d3,
            batchnormalization3,
            globalaveragepool1,
            conv2d4,
            reshape1,
            conv2d5,
            reshape2,
            conv2d6,
            batchnormalization4,
            conv2d7,
            batchnormalization5,
            conv2d8,
            batchnormalization6,
            conv2d9,
            batchnormalization7,
            conv2d10,
            batchnormalization8,
            conv2d11,
            batchnormalization9,
            conv2d12,
            batchnormalization10,
            conv2d13,
            batchnormalization11,
            constant221,
            constant220,
            conv2d14,
            batchnormalization12,
            constant225,
            constant224,
            globalaveragepool2,
            conv2d15,
            reshape3,
            conv2d16,
            reshape4,
            device: device.clone(),
        }
    }
    #[allow(clippy::let_and_return, clippy::approx_constant)]
    pub fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        let conv2d1_out1 = self.conv2d1.forward(x);
        let batchnormalization1_out1 = self.batchnormalization1.forward(conv2d1_out1);
        let constant215_out1 = self.constant215.val();
        let add1_out1 = batchnormalization1_out1
            .clone()
            .add((constant215_out1).unsqueeze_dims(&[0isize, 1isize, 2isize]));
        let clip1_out1 = add1_out1.clamp(0f64, 6f64);
        let mul1_out1 = batchnormalization1_out1.mul(clip1_out1);
        let constant214_out1 = self.constant214.val();
        let div1_out1 = mul1_out1
            .div((constant214_out1).unsqueeze_dims(&[0isize, 1isize, 2isize]));
        let conv2d2_out1 = self.conv2d2.forward(div1_out1);
        let batchnormalization2_out1 = self.batchnormalization2.forward(conv2d2_out1);
        let relu1_out1 = burn::tensor::activation::relu(batchnormalization2_out1);
        let conv2d3_out1 = self.conv2d3.forward(relu1_out1);
        let batchnormalization3_out1 = self.batchnormalization3.forward(conv2d3_out1);
        let relu2_out1 = burn::tensor::activation::relu(batchnormalization3_out1);
        let globalaveragepool1_out1 = self
            .globalaveragepool1
            .forward(relu2_out1.clone());
        let conv2d4_out1 = self.conv2d4.forward(globalaveragepool1_out1);
        let reshape1_out1 = self.reshape1.val();
        let add2_out1 = conv2d4_out1.add(reshape1_out1);
        let relu3_out1 = burn::tensor::activation::relu(add2_out1);
        let conv2d5_out1 = self.conv2d5.forward(relu3_out1);
        let reshape2_out1 = self.reshape2.val();
        let add3_out1 = conv2d5_out1.add(reshape2_out1);
        let hardsigmoid1_out1 = burn::tensor::activation::hard_sigmoid(
            add3_out1,
            0.20000000298023224,
            0.5,
        );
        let mul2_out1 = relu2_out1.mul(hardsigmoid1_out1);
        let conv2d6_out1 = self.conv2d6.forward(mul2_out1);
        let batchnormalization4_out1 = self.batchnormalization4.forward(conv2d6_out1);
        let conv2d7_out1 = self.conv2d7.forward(batchnormalization4_out1);
        let batchnormalization5_out1 = self.batchnormalization5.forward(conv2d7_out1);
        let relu4_out1 = burn::tensor::activation::relu(batchnormalization5_out1);
        let conv2d8_out1 = self.conv2d8.forward(relu4_out1);
        let batchnormalization6_out1 = self.batchnormalization6.forward(conv2d8_out1);
        let relu5_out1 = burn::tensor::activation::relu(batchnormalization6_out1);
        let conv2d9_out1 = self.conv2d9.forward(relu5_out1);
        let batchnormalization7_out1 = self.batchnormalization7.forward(conv2d9_out1);
        let conv2d10_out1 = self.conv2d10.forward(batchnormalization7_out1.clone());
        let batchnormalization8_out1 = self.batchnormalization8.forward(conv2d10_out1);
        let relu6_out1 = burn::tensor::activation::relu(batchnormalization8_out1);
        let conv2d11_out1 = self.conv2d11.forward(relu6_out1);
        let batchnormalization9_out1 = self.batchnormalization9.forward(conv2d11_out1);
        let relu7_out1 = burn::tensor::activation::relu(batchnormalization9_out1);
        let conv2d12_out1 = self.conv2d12.forward(relu7_out1);
        let batchnormalization10_out1 = self.batchnormalization10.forward(conv2d12_out1);
        let add4_out1 = batchnormalization7_out1.add(batchnormalization10_out1);
        let conv2d13_out1 = self.conv2d13.forward(add4_out1);
        let batchnormalization11_out1 = self.batchnormalization11.forward(conv2d13_out1);
        let constant221_out1 = self.constant221.val();
        let add5_out1 = batchnormalization11_out1
            .clone()
            .add((constant221_out1).unsqueeze_dims(&[0isize, 1isize, 2isize]));
        let clip2_out1 = add5_out1.clamp(0f64, 6f64);
        let mul3_out1 = batchnormalization11_out1.mul(clip2_out1);
        let constant220_out1 = self.constant220.val();
        let div2_out1 = mul3_out1
            .div((constant220_out1).unsqueeze_dims(&[0isize, 1isize, 2isize]));
        let conv2d14_out1 = self.conv2d14.forward(div2_out1);
        let batchnormalization12_out1 = self.batchnormalization12.forward(conv2d14_out1);
        let constant225_out1 = self.constant225.val();
        let add6_out1 = batchnormalization12_out1
            .clone()
            .add((constant225_out1).unsqueeze_dims(&[0isize, 1isize, 2isize]));
        let clip3_out1 = add6_out1.clamp(0f64, 6f64);
        let mul4_out1 = batchnormalization12_out1.mul(clip3_out1);
        let constant224_out1 = self.constant224.val();
        let div3_out1 = mul4_out1
            .div((constant224_out1).unsqueeze_dims(&[0isize, 1isize, 2isize]));
        let globalaveragepool2_out1 = self.globalaveragepool2.forward(div3_out1.clone());
        let conv2d15_out1 = self.conv2d15.forward(globalaveragepool2_out1);
        let reshape3_out1 = self.reshape3.val();
        let add7_out1 = conv2d15_out1.add(reshape3_out1);
        let relu8_out1 = burn::tensor::activation::relu(add7_out1);
        let conv2d16_out1 = self.conv2d16.forward(relu8_out1);
        let reshape4_out1 = self.reshape4.val();
        let add8_out1 = conv2d16_out1.add(reshape4_out1);
        let hardsigmoid2_out1 = burn::tensor::activation::hard_sigmoid(
            add8_out1,
            0.20000000298023224,
            0.5,
        );
        let mul5_out1 = div3_out1.mul(hardsigmoid2_out1);
        mul5_out1
    }
}
#[derive(Module, Debug)]
pub struct Submodule2 {
    conv2d17: Conv2d,
    batchnormalization13: BatchNorm,
    conv2d18: Conv2d,
    batchnormalization14: BatchNorm,
    constant231: burn::module::Param<Tensor<1>>,
    constant230: burn::module::Param<Tensor<1>>,
    conv2d19: Conv2d,
    batchnormalization15: BatchNorm,
    constant235: burn::module::Param<Tensor<1>>,
    constant234: burn::module::Param<Tensor<1>>,
    globalaveragepool3: AdaptiveAvgPool2d,
    conv2d20: Conv2d,
    reshape5: burn::module::Param<Tensor<4>>,
    conv2d21: Conv2d,
    reshape6: burn::module::Param<Tensor<4>>,
    conv2d22: Conv2d,
    batchnormalization16: BatchNorm,
    conv2d23: Conv2d,
    batchnormalization17: BatchNorm,
    constant241: burn::module::Param<Tensor<1>>,
    constant240: burn::module::Param<Tensor<1>>,
    conv2d24: Conv2d,
    batchnormalization18: BatchNorm,
    constant245: burn::module::Param<Tensor<1>>,
    constant244: burn::module::Param<Tensor<1>>,
    globalaveragepool4: AdaptiveAvgPool2d,
    conv2d25: Conv2d,
    reshape7: burn::module::Param<Tensor<4>>,
    conv2d26: Conv2d,
    reshape8: burn::module::Param<Tensor<4>>,
    conv2d27: Conv2d,
    batchnormalization19: BatchNorm,
    conv2d28: Conv2d,
    batchnormalization20: BatchNorm,
    constant251: burn::module::Param<Tensor<1>>,
    constant250: burn::module::Param<Tensor<1>>,
    conv2d29: Conv2d,
    batchnormalization21: BatchNorm,
    constant255: burn::module::Param<Tensor<1>>,
    constant254: burn::module::Param<Tensor<1>>,
    globalaveragepool5: AdaptiveAvgPool2d,
    conv2d30: Conv2d,
    reshape9: burn::module::Param<Tensor<4>>,
    conv2d31: Conv2d,
    reshape10: burn::module::Param<Tensor<4>>,
    conv2d32: Conv2d,
    batchnormalization22: BatchNorm,
    #[module(skip)]
    device: Device,
}
impl Submodule2 {
    #[allow(unused_variables)]
    pub fn new(device: &Device) -> Self {
        let conv2d17 = Conv2dConfig::new([32, 16], [1, 1])
            .with_stride([1, 1])
            .with_padding(PaddingConfig2d::Valid)
            .with_dilation([1, 1])
            .with_groups(1)
            .with_bias(false)
            .init(device);
        let batchnormalization13 = BatchNormConfig::new(16)
            .with_epsilon(0.000009999999747378752f64)
            .with_momentum(0.8999999761581421f64)
            .init(device);
        let conv2d18 = Conv2dConfig::new([16, 88], [1, 1])
            .with_stride([1, 1])
            .with_padding(PaddingConfig2d::Valid)
            .with_dilation([1, 1])
            .with_groups(1)
            .with_bias(false)
            .init(device);
        let batchnormalization14 = BatchNormConfig::new(88)
            .with_epsilon(0.000009999999747378752f64)
            .with_momentum(0.8999999761581421f64)
            .init(device);
        let constant231: burn::module::Param<Tensor<1>> = burn::module::Param::uninitialized(
            burn::module::ParamId::new(),
            move |device, _require_grad| Tensor::<
                1,
            >::from_data(
                burn::tensor::TensorData::from([3f64]),
                (device, burn::tensor::DType::F32),
            ),
            device.clone(),
            false,
            [1].into(),
        );
        let constant230: burn::module::Param<Tensor<1>> = burn::module::Param::uninitialized(
            burn::module::ParamId::new(),
            move |device, _require_grad| Tensor::<
                1,
            >::from_data(
                burn::tensor::TensorData::from([6f64]),
                (device, burn::tensor::DType::F32),
            ),
            device.clone(),
            false,
            [1].into(),
        );
        let conv2d19 = Conv2dConfig::new([88, 88], [5, 5])
            .with_stride([1, 1])
            .with_padding(PaddingConfig2d::Explicit(2, 2, 2, 2))
            .with_dilation([1, 1])
            .with_groups(88)
            .with_bias(false)
            .init(device);
        let batchnormalization15 = BatchNormConfig::new(88)
            .with_epsilon(0.000009999999747378752f64)
            .with_momentum(0.8999999761581421f64)
            .init(device);
        let constant235: burn::module::Param<Tensor<1>> = burn::module::Param::uninitialized(
            burn::module::ParamId::new(),
            move |device, _require_grad| Tensor::<
                1,
            >::from_data(
                burn::tensor::TensorData::from([3f64]),
                (device, burn::tensor::DType::F32),
            ),
            device.clone(),
            false,
            [1].into(),
        );
        let constant234: burn::module::Param<Tensor<1>> = burn::module::Param::uninitialized(
            burn::module::ParamId::new(),
            move |device, _require_grad| Tensor::<
                1,
            >::from_data(
                burn::tensor::TensorData::from([6f64]),
                (device, burn::tensor::DType::F32),
            ),
            device.clone(),
            false,
            [1].into(),
        );
        let globalaveragepool3 = AdaptiveAvgPool2dConfig::new([1, 1]).init();
        let conv2d20 = Conv2dConfig::new([88, 22], [1, 1])
            .with_stride([1, 1])
            .with_padding(PaddingConfig2d::Valid)
            .with_dilation([1, 1])
            .with_groups(1)
            .with_bias(false)
            .init(device);
        let reshape5: burn::module::Param<Tensor<4>> = burn::module::Param::uninitialized(
            burn::module::ParamId::new(),
            move |device, _require_grad| Tensor::<
                4,
            >::zeros([1, 22, 1, 1], (device, burn::tensor::DType::F32)),
            device.clone(),
            false,
            [1, 22, 1, 1].into(),
        );
        let conv2d21 = Conv2dConfig::new([22, 88], [1, 1])
            .with_stride([1, 1])
            .with_padding(PaddingConfig2d::Valid)
            .with_dilation([1, 1])
            .with_groups(1)
            .with_bias(false)
            .init(device);
        let reshape6: burn::module::Param<Tensor<4>> = burn::module::Param::uninitialized(
            burn::module::ParamId::new(),
            move |device, _require_grad| Tensor::<
                4,
            >::zeros([1, 88, 1, 1], (device, burn::tensor::DType::F32)),
            device.clone(),
            false,
            [1, 88, 1, 1].into(),
        );
        let conv2d22 = Conv2dConfig::new([88, 16], [1, 1])
            .with_stride([1, 1])
            .with_padding(PaddingConfig2d::Valid)
            .with_dilation([1, 1])
            .with_groups(1)
            .with_bias(false)
            .init(device);
        let batchnormalization16 = BatchNormConfig::new(16)
            .with_epsilon(0.000009999999747378752f64)
            .with_momentum(0.8999999761581421f64)
            .init(device);
        let conv2d23 = Conv2dConfig::new([16, 88], [1, 1])
            .with_stride([1, 1])
            .with_padding(PaddingConfig2d::Valid)
            .with_dilation([1, 1])
            .with_groups(1)
            .with_bias(false)
            .init(device);
        let batchnormalization17 = BatchNormConfig::new(88)
            .with_epsilon(0.000009999999747378752f64)
            .with_momentum(0.8999999761581421f64)
            .init(device);
        let constant241: burn::module::Param<Tensor<1>> = burn::module::Param::uninitialized(
            burn::module::ParamId::new(),
            move |device, _require_grad| Tensor::<
                1,
            >::from_data(
                burn::tensor::TensorData::from([3f64]),
                (device, burn::tensor::DType::F32),
            ),
            device.clone(),
            false,
            [1].into(),
        );
        let constant240: burn::module::Param<Tensor<1>> = burn::module::Param::uninitialized(
            burn::module::ParamId::new(),
            move |device, _require_grad| Tensor::<
                1,
            >::from_data(
                burn::tensor::TensorData::from([6f64]),
                (device, burn::tensor::DType::F32),
            ),
            device.clone(),
            false,
            [1].into(),
        );
        let conv2d24 = Conv2dConfig::new([88, 88], [5, 5])
            .with_stride([1, 1])
            .with_padding(PaddingConfig2d::Explicit(2, 2, 2, 2))
            .with_dilation([1, 1])
            .with_groups(88)
            .with_bias(false)
            .init(device);
        let batchnormalization18 = BatchNormConfig::new(88)
            .with_epsilon(0.000009999999747378752f64)
            .with_momentum(0.8999999761581421f64)
            .init(device);
        let constant245: burn::module::Param<Tensor<1>> = burn::module::Param::uninitialized(
            burn::module::ParamId::new(),
            move |device, _require_grad| Tensor::<
                1,
            >::from_data(
                burn::tensor::TensorData::from([3f64]),
                (device, burn::tensor::DType::F32),
            ),
            device.clone(),
            false,
            [1].into(),
        );
        let constant244: burn::module::Param<Tensor<1>> = burn::module::Param::uninitialized(
            burn::module::ParamId::new(),
            move |device, _require_grad| Tensor::<
                1,
            >::from_data(
                burn::tensor::TensorData::from([6f64]),
                (device, burn::tensor::DType::F32),
            ),
            device.clone(),
            false,
            [1].into(),
        );
        let globalaveragepool4 = AdaptiveAvgPool2dConfig::new([1, 1]).init();
        let conv2d25 = Conv2dConfig::new([88, 22], [1, 1])
            .with_stride([1, 1])
            .with_padding(PaddingConfig2d::Valid)
            .with_dilation([1, 1])
            .with_groups(1)
            .with_bias(false)
            .init(device);
        let reshape7: burn::module::Param<Tensor<4>> = burn::module::Param::uninitialized(
            burn::module::ParamId::new(),
            move |device, _require_grad| Tensor::<
                4,
            >::zeros([1, 22, 1, 1], (device, burn::tensor::DType::F32)),
            device.clone(),
            false,
            [1, 22, 1, 1].into(),
        );
        let conv2d26 = Conv2dConfig::new([22, 88], [1, 1])
            .with_stride([1, 1])
            .with_padding(PaddingConfig2d::Valid)
            .with_dilation([1, 1])
            .with_groups(1)
            .with_bias(false)
            .init(device);
        let reshape8: burn::module::Param<Tensor<4>> = burn::module::Param::uninitialized(
            burn::module::ParamId::new(),
            move |device, _require_grad| Tensor::<
                4,
            >::zeros([1, 88, 1, 1], (device, burn::tensor::DType::F32)),
            device.clone(),
            false,
            [1, 88, 1, 1].into(),
        );
        let conv2d27 = Conv2dConfig::new([88, 16], [1, 1])
            .with_stride([1, 1])
            .with_padding(PaddingConfig2d::Valid)
            .with_dilation([1, 1])
            .with_groups(1)
            .with_bias(false)
            .init(device);
        let batchnormalization19 = BatchNormConfig::new(16)
            .with_epsilon(0.000009999999747378752f64)
            .with_momentum(0.8999999761581421f64)
            .init(device);
        let conv2d28 = Conv2dConfig::new([16, 40], [1, 1])
            .with_stride([1, 1])
            .with_padding(PaddingConfig2d::Valid)
            .with_dilation([1, 1])
            .with_groups(1)
            .with_bias(false)
            .init(device);
        let batchnormalization20 = BatchNormConfig::new(40)
            .with_epsilon(0.000009999999747378752f64)
            .with_momentum(0.8999999761581421f64)
            .init(device);
        let constant251: burn::module::Param<Tensor<1>> = burn::module::Param::uninitialized(
            burn::module::ParamId::new(),
            move |device, _require_grad| Tensor::<
                1,
            >::from_data(
                burn::tensor::TensorData::from([3f64]),
                (device, burn::tensor::DType::F32),
            ),
            device.clone(),
            false,
            [1].into(),
        );
        let constant250: burn::module::Param<Tensor<1>> = burn::module::Param::uninitialized(
            burn::module::ParamId::new(),
            move |device, _require_grad| Tensor::<
                1,
            >::from_data(
                burn::tensor::TensorData::from([6f64]),
                (device, burn::tensor::DType::F32),
            ),
            device.clone(),
            false,
            [1].into(),
        );
        let conv2d29 = Conv2dConfig::new([40, 40], [5, 5])
            .with_stride([1, 1])
            .with_padding(PaddingConfig2d::Explicit(2, 2, 2, 2))
            .with_dilation([1, 1])
            .with_groups(40)
            .with_bias(false)
            .init(device);
        let batchnormalization21 = BatchNormConfig::new(40)
            .with_epsilon(0.000009999999747378752f64)
            .with_momentum(0.8999999761581421f64)
            .init(device);
        let constant255: burn::module::Param<Tensor<1>> = burn::module::Param::uninitialized(
            burn::module::ParamId::new(),
            move |device, _require_grad| Tensor::<
                1,
            >::from_data(
                burn::tensor::TensorData::from([3f64]),
                (device, burn::tensor::DType::F32),
            ),
            device.clone(),
            false,
            [1].into(),
        );
        let constant254: burn::module::Param<Tensor<1>> = burn::module::Param::uninitialized(
            burn::module::ParamId::new(),
            move |device, _require_grad| Tensor::<
                1,
            >::from_data(
                burn::tensor::TensorData::from([6f64]),
                (device, burn::tensor::DType::F32),
            ),
            device.clone(),
            false,
            [1].into(),
        );
        let globalaveragepool5 = AdaptiveAvgPool2dConfig::new([1, 1]).init();
        let conv2d30 = Conv2dConfig::new([40, 10], [1, 1])
            .with_stride([1, 1])
            .with_padding(PaddingConfig2d::Valid)
            .with_dilation([1, 1])
            .with_groups(1)
            .with_bias(false)
            .init(device);
        let reshape9: burn::module::Param<Tensor<4>> = burn::module::Param::uninitialized(
            burn::module::ParamId::new(),
            move |device, _require_grad| Tensor::<
                4,
            >::zeros([1, 10, 1, 1], (device, burn::tensor::DType::F32)),
            device.clone(),
            false,
            [1, 10, 1, 1].into(),
        );
        let conv2d31 = Conv2dConfig::new([10, 40], [1, 1])
            .with_stride([1, 1])
            .with_padding(PaddingConfig2d::Valid)
            .with_dilation([1, 1])
            .with_groups(1)
            .with_bias(false)
            .init(device);
        let reshape10: burn::module::Param<Tensor<4>> = burn::module::Param::uninitialized(
            burn::module::ParamId::new(),
            move |device, _require_grad| Tensor::<
                4,
            >::zeros([1, 40, 1, 1], (device, burn::tensor::DType::F32)),
            device.clone(),
            false,
            [1, 40, 1, 1].into(),
        );
        let conv2d32 = Conv2dConfig::new([40, 16], [1, 1])
            .with_stride([1, 1])
            .with_padding(PaddingConfig2d::Valid)
            .with_dilation([1, 1])
            .with_groups(1)
            .with_bias(false)
            .init(device);
        let batchnormalization22 = BatchNormConfig::new(16)
            .with_epsilon(0.000009999999747378752f64)
            .with_momentum(0.8999999761581421f64)
            .init(device);
        Self {
            conv2d17,
            batchnormalization13,
            conv2d18,
            batchnormalization14,
            constant231,
            constant230,
            conv2d19,
            batchnormalization15,
            constant235,
            constant234,
            globalaveragepool3,
            conv2d20,
            reshape5,
            conv2d21,
            reshape6,
            conv2d22,
            batchnormalization16,
            conv2d23,
            batchnormalization17,
            constant241,
            constant240,
            conv2d24,
            batchnormalization18,
            constant245,
            constant244,
            globalaveragepool4,
            conv2d25,
            reshape7,
            conv2d26,
            reshape8,
            conv2d27,
            batchnormalization19,
            conv2d28,
            batchnormalization20,
            constant251,
            constant250,
            conv2d29,
            batchnormalization21,
            constant255,
            constant254,
            globalaveragepool5,
            conv2d30,
            reshape9,
            conv2d31,
            reshape10,
            conv2d32,
            batchnormalization22,
            device: device.clone(),
        }
    }
    #[allow(clippy::let_and_return, clippy::approx_constant)]
    pub fn forward(&self, mul5_out1: Tensor<4>) -> Tensor<4> {
        let conv2d17_out1 = self.conv2d17.forward(mul5_out1);
        let batchnormalization13_out1 = self.batchnormalization13.forward(conv2d17_out1);
        let conv2d18_out1 = self.conv2d18.forward(batchnormalization13_out1.clone());
        let batchnormalization14_out1 = self.batchnormalization14.forward(conv2d18_out1);
        let constant231_out1 = self.constant231.val();
        let add9_out1 = batchnormalization14_out1
            .clone()
            .add((constant231_out1).unsqueeze_dims(&[0isize, 1isize, 2isize]));
        let clip4_out1 = add9_out1.clamp(0f64, 6f64);
        let mul6_out1 = batchnormalization14_out1.mul(clip4_out1);
        let constant230_out1 = self.constant230.val();
        let div4_out1 = mul6_out1
            .div((constant230_out1).unsqueeze_dims(&[0isize, 1isize, 2isize]));
        let conv2d19_out1 = self.conv2d19.forward(div4_out1);
        let batchnormalization15_out1 = self.batchnormalization15.forward(conv2d19_out1);
        let constant235_out1 = self.constant235.val();
        let add10_out1 = batchnormalization15_out1
            .clone()
            .add((constant235_out1).unsqueeze_dims(&[0isize, 1isize, 2isize]));
        let clip5_out1 = add10_out1.clamp(0f64, 6f64);
        let mul7_out1 = batchnormalization15_out1.mul(clip5_out1);
        let constant234_out1 = self.constant234.val();
        let div5_out1 = mul7_out1
            .div((constant234_out1).unsqueeze_dims(&[0isize, 1isize, 2isize]));
        let globalaveragepool3_out1 = self.globalaveragepool3.forward(div5_out1.clone());
        let conv2d20_out1 = self.conv2d20.forward(globalaveragepool3_out1);
        let reshape5_out1 = self.reshape5.val();
        let add11_out1 = conv2d20_out1.add(reshape5_out1);
        let relu9_out1 = burn::tensor::activation::relu(add11_out1);
        let conv2d21_out1 = self.conv2d21.forward(relu9_out1);
        let reshape6_out1 = self.reshape6.val();
        let add12_out1 = conv2d21_out1.add(reshape6_out1);
        let hardsigmoid3_out1 = burn::tensor::activation::hard_sigmoid(
            add12_out1,
            0.20000000298023224,
            0.5,
        );
        let mul8_out1 = div5_out1.mul(hardsigmoid3_out1);
        let conv2d22_out1 = self.conv2d22.forward(mul8_out1);
        let batchnormalization16_out1 = self.batchnormalization16.forward(conv2d22_out1);
        let add13_out1 = batchnormalization13_out1.add(batchnormalization16_out1);
        let conv2d23_out1 = self.conv2d23.forward(add13_out1.clone());
        let batchnormalization17_out1 = self.batchnormalization17.forward(conv2d23_out1);
        let constant241_out1 = self.constant241.val();
        let add14_out1 = batchnormalization17_out1
            .clone()
            .add((constant241_out1).unsqueeze_dims(&[0isize, 1isize, 2isize]));
        let clip6_out1 = add14_out1.clamp(0f64, 6f64);
        let mul9_out1 = batchnormalization17_out1.mul(clip6_out1);
        let constant240_out1 = self.constant240.val();
        let div6_out1 = mul9_out1
            .div((constant240_out1).unsqueeze_dims(&[0isize, 1isize, 2isize]));
        let conv2d24_out1 = self.conv2d24.forward(div6_out1);
        let batchnormalization18_out1 = self.batchnormalization18.forward(conv2d24_out1);
        let constant245_out1 = self.constant245.val();
        let add15_out1 = batchnormalization18_out1
            .clone()
            .add((constant245_out1).unsqueeze_dims(&[0isize, 1isize, 2isize]));
        let clip7_out1 = add15_out1.clamp(0f64, 6f64);
        let mul10_out1 = batchnormalization18_out1.mul(clip7_out1);
        let constant244_out1 = self.constant244.val();
        let div7_out1 = mul10_out1
            .div((constant244_out1).unsqueeze_dims(&[0isize, 1isize, 2isize]));
        let globalaveragepool4_out1 = self.globalaveragepool4.forward(div7_out1.clone());
        let conv2d25_out1 = self.conv2d25.forward(globalaveragepool4_out1);
        let reshape7_out1 = self.reshape7.val();
        let add16_out1 = conv2d25_out1.add(reshape7_out1);
        let relu10_out1 = burn::tensor::activation::relu(add16_out1);
        let conv2d26_out1 = self.conv2d26.forward(relu10_out1);
        let reshape8_out1 = self.reshape8.val();
        let add17_out1 = conv2d26_out1.add(reshape8_out1);
        let hardsigmoid4_out1 = burn::tensor::activation::hard_sigmoid(
            add17_out1,
            0.20000000298023224,
            0.5,
        );
        let mul11_out1 = div7_out1.mul(hardsigmoid4_out1);
        let conv2d27_out1 = self.conv2d27.forward(mul11_out1);
        let batchnormalization19_out1 = self.batchnormalization19.forward(conv2d27_out1);
        let add18_out1 = add13_out1.add(batchnormalization19_out1);
        let conv2d28_out1 = self.conv2d28.forward(add18_out1.clone());
        let batchnormalization20_out1 = self.batchnormalization20.forward(conv2d28_out1);
        let constant251_out1 = self.constant251.val();
        let add19_out1 = batchnormalization20_out1
            .clone()
            .add((constant251_out1).unsqueeze_dims(&[0isize, 1isize, 2isize]));
        let clip8_out1 = add19_out1.clamp(0f64, 6f64);
        let mul12_out1 = batchnormalization20_out1.mul(clip8_out1);
        let constant250_out1 = self.constant250.val();
        let div8_out1 = mul12_out1
            .div((constant250_out1).unsqueeze_dims(&[0isize, 1isize, 2isize]));
        let conv2d29_out1 = self.conv2d29.forward(div8_out1);
        let batchnormalization21_out1 = self.batchnormalization21.forward(conv2d29_out1);
        let constant255_out1 = self.constant255.val();
        let add20_out1 = batchnormalization21_out1
            .clone()
            .add((constant255_out1).unsqueeze_dims(&[0isize, 1isize, 2isize]));
        let clip9_out1 = add20_out1.clamp(0f64, 6f64);
        let mul13_out1 = batchnormalization21_out1.mul(clip9_out1);
        let constant254_out1 = self.constant254.val();
        let div9_out1 = mul13_out1
            .div((constant254_out1).unsqueeze_dims(&[0isize, 1isize, 2isize]));
        let globalaveragepool5_out1 = self.globalaveragepool5.forward(div9_out1.clone());
        let conv2d30_out1 = self.conv2d30.forward(globalaveragepool5_out1);
        let reshape9_out1 = self.reshape9.val();
        let add21_out1 = conv2d30_out1.add(reshape9_out1);
        let relu11_out1 = burn::tensor::activation::relu(add21_out1);
        let conv2d31_out1 = self.conv2d31.forward(relu11_out1);
        let reshape10_out1 = self.reshape10.val();
        let add22_out1 = conv2d31_out1.add(reshape10_out1);
        let hardsigmoid5_out1 = burn::tensor::activation::hard_sigmoid(
            add22_out1,
            0.20000000298023224,
            0.5,
        );
        let mul14_out1 = div9_out1.mul(hardsigmoid5_out1);
        let conv2d32_out1 = self.conv2d32.forward(mul14_out1);
        let batchnormalization22_out1 = self.batchnormalization22.forward(conv2d32_out1);
        let add23_out1 = add18_out1.add(batchnormalization22_out1);
        add23_out1
    }
}
#[derive(Module, Debug)]
pub struct Submodule3 {
    conv2d33: Conv2d,
    batchnormalization23: BatchNorm,
    constant261: burn::module::Param<Tensor<1>>,
    constant260: burn::module::Param<Tensor<1>>,
    conv2d34: Conv2d,
    batchnormalization24: BatchNorm,
    constant265: burn::module::Param<Tensor<1>>,
    constant264: burn::module::Param<Tensor<1>>,
    globalaveragepool6: AdaptiveAvgPool2d,
    conv2d35: Conv2d,
    reshape11: burn::module::Param<Tensor<4>>,
    conv2d36: Conv2d,
    reshape12: burn::module::Param<Tensor<4>>,
    conv2d37: Conv2d,
    batchnormalization25: BatchNorm,
    conv2d38: Conv2d,
    batchnormalization26: BatchNorm,
    constant271: burn::module::Param<Tensor<1>>,
    constant270: burn::module::Param<Tensor<1>>,
    conv2d39: Conv2d,
    batchnormalization27: BatchNorm,
    constant275: burn::module::Param<Tensor<1>>,
    constant274: burn::module::Param<Tensor<1>>,
    globalaveragepool7: AdaptiveAvgPool2d,
    conv2d40: Conv2d,
    reshape13: burn::module::Param<Tensor<4>>,
    conv2d41: Conv2d,
    reshape14: burn::module::Param<Tensor<4>>,
    conv2d42: Conv2d,
    batchnormalization28: BatchNorm,
    conv2d43: Conv2d,
    batchnormalization29: BatchNorm,
    constant281: burn::module::Param<Tensor<1>>,
    constant280: burn::module::Param<Tensor<1>>,
    #[module(skip)]
    device: Device,
}
impl Submodule3 {
    #[allow(unused_variables)]
    pub fn new(device: &Device) -> Self {
        let conv2d33 = Conv2dConfig::new([16, 48], [1, 1])
            .with_stride([1, 1])
            .with_padding(PaddingConfig2d::Valid)
            .with_dilation([1, 1])
            .with_groups(1)
            .with_bias(false)
            .init(device);
        let batchnormalization23 = BatchNormConfig::new(48)
            .with_epsilon(0.000009999999747378752f64)
            .with_momentum(0.8999999761581421f64)
            .init(device);
        let constant261: burn::module::Param<Tensor<1>> = burn::module::Param::uninitialized(
            burn::module::ParamId::new(),
            move |device, _require_grad| Tensor::<
                1,
            >::from_data(
                burn::tensor::TensorData::from([3f64]),
                (device, burn::tensor::DType::F32),
            ),
            device.clone(),
            false,
            [1].into(),
        );
        let constant260: burn::module::Param<Tensor<1>> = burn::module::Param::uninitialized(
            burn::module::ParamId::new(),
            move |device, _require_grad| Tensor::<
                1,
            >::from_data(
                burn::tensor::TensorData::from([6f64]),
                (device, burn::tensor::DType::F32),
            ),
            device.clone(),
            false,
            [1].into(),
        );
        let conv2d34 = Conv2dConfig::new([48, 48], [5, 5])
            .with_stride([1, 1])
            .with_padding(PaddingConfig2d::Explicit(2, 2, 2, 2))
            .with_dilation([1, 1])
            .with_groups(48)
            .with_bias(false)
            .init(device);
        let batchnormalization24 = BatchNormConfig::new(48)
            .with_epsilon(0.000009999999747378752f64)
            .with_momentum(0.8999999761581421f64)
            .init(device);
        let constant265: burn::module::Param<Tensor<1>> = burn::module::Param::uninitialized(
            burn::module::ParamId::new(),
            move |device, _require_grad| Tensor::<
                1,
            >::from_data(
                burn::tensor::TensorData::from([3f64]),
                (device, burn::tensor::DType::F32),
            ),
            device.clone(),
            false,
            [1].into(),
        );
        let constant264: burn::module::Param<Tensor<1>> = burn::module::Param::uninitialized(
            burn::module::ParamId::new(),
            move |device, _require_grad| Tensor::<
                1,
            >::from_data(
                burn::tensor::TensorData::from([6f64]),
                (device, burn::tensor::DType::F32),
            ),
            device.clone(),
            false,
            [1].into(),
        );
        let globalaveragepool6 = AdaptiveAvgPool2dConfig::new([1, 1]).init();
        let conv2d35 = Conv2dConfig::new([48, 12], [1, 1])
            .with_stride([1, 1])
            .with_padding(PaddingConfig2d::Valid)
            .with_dilation([1, 1])
            .with_groups(1)
            .with_bias(false)
            .init(device);
        let reshape11: burn::module::Param<Tensor<4>> = burn::module::Param::uninitialized(
            burn::module::ParamId::new(),
            move |device, _require_grad| Tensor::<
                4,
            >::zeros([1, 12, 1, 1], (device, burn::tensor::DType::F32)),
            device.clone(),
            false,
            [1, 12, 1, 1].into(),
        );
        let conv2d36 = Conv2dConfig::new([12, 48], [1, 1])
            .with_stride([1, 1])
            .with_padding(PaddingConfig2d::Valid)
            .with_dilation([1, 1])
            .with_groups(1)
            .with_bias(false)
            .init(device);
        let reshape12: burn::module::Param<Tensor<4>> = burn::module::Param::uninitialized(
            burn::module::ParamId::new(),
            move |device, _require_grad| Tensor::<
                4,
            >::zeros([1, 48, 1, 1], (device, burn::tensor::DType::F32)),
            device.clone(),
            false,
            [1, 48, 1, 1].into(),
        );
        let conv2d37 = Conv2dConfig::new([48, 16], [1, 1])
            .with_stride([1, 1])
            .with_padding(PaddingConfig2d::Valid)
            .with_dilation([1, 1])
            .with_groups(1)
            .with_bias(false)
            .init(device);
        let batchnormalization25 = BatchNormConfig::new(16)
            .with_epsilon(0.000009999999747378752f64)
            .with_momentum(0.8999999761581421f64)
            .init(device);
        let conv2d38 = Conv2dConfig::new([16, 104], [1, 1])
            .with_stride([1, 1])
            .with_padding(PaddingConfig2d::Valid)
            .with_dilation([1, 1])
            .with_groups(1)
            .with_bias(false)
            .init(device);
        let batchnormalization26 = BatchNormConfig::new(104)
            .with_epsilon(0.000009999999747378752f64)
            .with_momentum(0.8999999761581421f64)
            .init(device);
        let constant271: burn::module::Param<Tensor<1>> = burn::module::Param::uninitialized(
            burn::module::ParamId::new(),
            move |device, _require_grad| Tensor::<
                1,
            >::from_data(
                burn::tensor::TensorData::from([3f64]),
                (device, burn::tensor::DType::F32),
            ),
            device.clone(),
            false,
            [1].into(),
        );
        let constant270: burn::module::Param<Tensor<1>> = burn::module::Param::uninitialized(
            burn::module::ParamId::new(),
            move |device, _require_grad| Tensor::<
                1,
            >::from_data(
                burn::tensor::TensorData::from([6f64]),
                (device, burn::tensor::DType::F32),
            ),
            device.clone(),
            false,
            [1].into(),
        );
        let conv2d39 = Conv2dConfig::new([104, 104], [5, 5])
            .with_stride([2, 1])
            .with_padding(PaddingConfig2d::Explicit(2, 2, 2, 2))
            .with_dilation([1, 1])
            .with_groups(104)
            .with_bias(false)
            .init(device);
        let batchnormalization27 = BatchNormConfig::new(104)
            .with_epsilon(0.000009999999747378752f64)
            .with_momentum(0.8999999761581421f64)
            .init(device);
        let constant275: burn::module::Param<Tensor<1>> = burn::module::Param::uninitialized(
            burn::module::ParamId::new(),
            move |device, _require_grad| Tensor::<
                1,
            >::from_data(
                burn::tensor::TensorData::from([3f64]),
                (device, burn::tensor::DType::F32),
            ),
            device.clone(),
            false,
            [1].into(),
        );
        let constant274: burn::module::Param<Tensor<1>> = burn::module::Param::uninitialized(
            burn::module::ParamId::new(),
            move |device, _require_grad| Tensor::<
                1,
            >::from_data(
                burn::tensor::TensorData::from([6f64]),
                (device, burn::tensor::DType::F32),
            ),
            device.clone(),
            false,
            [1].into(),
        );
        let globalaveragepool7 = AdaptiveAvgPool2dConfig::new([1, 1]).init();
        let conv2d40 = Conv2dConfig::new([104, 26], [1, 1])
            .with_stride([1, 1])
            .with_padding(PaddingConfig2d::Valid)
            .with_dilation([1, 1])
            .with_groups(1)
            .with_bias(false)
            .init(device);
        let reshape13: burn::module::Param<Tensor<4>> = burn::module::Param::uninitialized(
            burn::module::ParamId::new(),
            move |device, _require_grad| Tensor::<
                4,
            >::zeros([1, 26, 1, 1], (device, burn::tensor::DType::F32)),
            device.clone(),
            false,
            [1, 26, 1, 1].into(),
        );
        let conv2d41 = Conv2dConfig::new([26, 104], [1, 1])
            .with_stride([1, 1])
            .with_padding(PaddingConfig2d::Valid)
            .with_dilation([1, 1])
            .with_groups(1)
            .with_bias(false)
            .init(device);
        let reshape14: burn::module::Param<Tensor<4>> = burn::module::Param::uninitialized(
            burn::module::ParamId::new(),
            move |device, _require_grad| Tensor::<
                4,
            >::zeros([1, 104, 1, 1], (device, burn::tensor::DType::F32)),
            device.clone(),
            false,
            [1, 104, 1, 1].into(),
        );
        let conv2d42 = Conv2dConfig::new([104, 32], [1, 1])
            .with_stride([1, 1])
            .with_padding(PaddingConfig2d::Valid)
            .with_dilation([1, 1])
            .with_groups(1)
            .with_bias(false)
            .init(device);
        let batchnormalization28 = BatchNormConfig::new(32)
            .with_epsilon(0.000009999999747378752f64)
            .with_momentum(0.8999999761581421f64)
            .init(device);
        let conv2d43 = Conv2dConfig::new([32, 200], [1, 1])
            .with_stride([1, 1])
            .with_padding(PaddingConfig2d::Valid)
            .with_dilation([1, 1])
            .with_groups(1)
            .with_bias(false)
            .init(device);
        let batchnormalization29 = BatchNormConfig::new(200)
            .with_epsilon(0.000009999999747378752f64)
            .with_momentum(0.8999999761581421f64)
            .init(device);
        let constant281: burn::module::Param<Tensor<1>> = burn::module::Param::uninitialized(
            burn::module::ParamId::new(),
            move |device, _require_grad| Tensor::<
                1,
            >::from_data(
                burn::tensor::TensorData::from([3f64]),
                (device, burn::tensor::DType::F32),
            ),
            device.clone(),
            false,
            [1].into(),
        );
        let constant280: burn::module::Param<Tensor<1>> = burn::module::Param::uninitialized(
            burn::module::ParamId::new(),
            move |device, _require_grad| Tensor::<
                1,
            >::from_data(
                burn::tensor::TensorData::from([6f64]),
                (device, burn::tensor::DType::F32),
            ),
            device.clone(),
            false,
            [1].into(),
        );
        Self {
            conv2d33,
            batchnormalization23,
            constant261,
            constant260,
            conv2d34,
            batchnormalization24,
            constant265,
            constant264,
            globalaveragepool6,
            conv2d35,
            reshape11,
            conv2d36,
            reshape12,
            conv2d37,
            batchnormalization25,
            conv2d38,
            batchnormalization26,
            constant271,
            constant270,
            conv2d39,
            batchnormalization27,
            constant275,
            constant274,
            globalaveragepool7,
            conv2d40,
            reshape13,
            conv2d41,
            reshape14,
            conv2d42,
            batchnormalization28,
            conv2d43,
            batchnormalization29,
            constant281,
            constant280,
            device: device.clone(),
        }
    }
    #[allow(clippy::let_and_return, clippy::approx_constant)]
    pub fn forward(&self, add23_out1: Tensor<4>) -> (Tensor<4>, Tensor<4>) {
        let conv2d33_out1 = self.conv2d33.forward(add23_out1.clone());
        let batchnormalization23_out1 = self.batchnormalization23.forward(conv2d33_out1);
        let constant261_out1 = self.constant261.val();
        let add24_out1 = batchnormalization23_out1
            .clone()
            .add((constant261_out1).unsqueeze_dims(&[0isize, 1isize, 2isize]));
        let clip10_out1 = add24_out1.clamp(0f64, 6f64);
        let mul15_out1 = batchnormalization23_out1.mul(clip10_out1);
        let constant260_out1 = self.constant260.val();
        let div10_out1 = mul15_out1
            .div((constant260_out1).unsqueeze_dims(&[0isize, 1isize, 2isize]));
        let conv2d34_out1 = self.conv2d34.forward(div10_out1);
        let batchnormalization24_out1 = self.batchnormalization24.forward(conv2d34_out1);
        let constant265_out1 = self.constant265.val();
        let add25_out1 = batchnormalization24_out1
            .clone()
            .add((constant265_out1).unsqueeze_dims(&[0isize, 1isize, 2isize]));
        let clip11_out1 = add25_out1.clamp(0f64, 6f64);
        let mul16_out1 = batchnormalization24_out1.mul(clip11_out1);
        let constant264_out1 = self.constant264.val();
        let div11_out1 = mul16_out1
            .div((constant264_out1).unsqueeze_dims(&[0isize, 1isize, 2isize]));
        let globalaveragepool6_out1 = self
            .globalaveragepool6
            .forward(div11_out1.clone());
        let conv2d35_out1 = self.conv2d35.forward(globalaveragepool6_out1);
        let reshape11_out1 = self.reshape11.val();
        let add26_out1 = conv2d35_out1.add(reshape11_out1);
        let relu12_out1 = burn::tensor::activation::relu(add26_out1);
        let conv2d36_out1 = self.conv2d36.forward(relu12_out1);
        let reshape12_out1 = self.reshape12.val();
        let add27_out1 = conv2d36_out1.add(reshape12_out1);
        let hardsigmoid6_out1 = burn::tensor::activation::hard_sigmoid(
            add27_out1,
            0.20000000298023224,
            0.5,
        );
        let mul17_out1 = div11_out1.mul(hardsigmoid6_out1);
        let conv2d37_out1 = self.conv2d37.forward(mul17_out1);
        let batchnormalization25_out1 = self.batchnormalization25.forward(conv2d37_out1);
        let add28_out1 = add23_out1.add(batchnormalization25_out1);
        let conv2d38_out1 = self.conv2d38.forward(add28_out1);
        let batchnormalization26_out1 = self.batchnormalization26.forward(conv2d38_out1);
        let constant271_out1 = self.constant271.val();
        let add29_out1 = batchnormalization26_out1
            .clone()
            .add((constant271_out1).unsqueeze_dims(&[0isize, 1isize, 2isize]));
        let clip12_out1 = add29_out1.clamp(0f64, 6f64);
        let mul18_out1 = batchnormalization26_out1.mul(clip12_out1);
        let constant270_out1 = self.constant270.val();
        let div12_out1 = mul18_out1
            .div((constant270_out1).unsqueeze_dims(&[0isize, 1isize, 2isize]));
        let conv2d39_out1 = self.conv2d39.forward(div12_out1);
        let batchnormalization27_out1 = self.batchnormalization27.forward(conv2d39_out1);
        let constant275_out1 = self.constant275.val();
        let add30_out1 = batchnormalization27_out1
            .clone()
            .add((constant275_out1).unsqueeze_dims(&[0isize, 1isize, 2isize]));
        let clip13_out1 = add30_out1.clamp(0f64, 6f64);
        let mul19_out1 = batchnormalization27_out1.mul(clip13_out1);
        let constant274_out1 = self.constant274.val();
        let div13_out1 = mul19_out1
            .div((constant274_out1).unsqueeze_dims(&[0isize, 1isize, 2isize]));
        let globalaveragepool7_out1 = self
            .globalaveragepool7
            .forward(div13_out1.clone());
        let conv2d40_out1 = self.conv2d40.forward(globalaveragepool7_out1);
        let reshape13_out1 = self.reshape13.val();
        let add31_out1 = conv2d40_out1.add(reshape13_out1);
        let relu13_out1 = burn::tensor::activation::relu(add31_out1);
        let conv2d41_out1 = self.conv2d41.forward(relu13_out1);
        let reshape14_out1 = self.reshape14.val();
        let add32_out1 = conv2d41_out1.add(reshape14_out1);
        let hardsigmoid7_out1 = burn::tensor::activation::hard_sigmoid(
            add32_out1,
            0.20000000298023224,
            0.5,
        );
        let mul20_out1 = div13_out1.mul(hardsigmoid7_out1);
        let conv2d42_out1 = self.conv2d42.forward(mul20_out1);
        let batchnormalization28_out1 = self.batchnormalization28.forward(conv2d42_out1);
        let conv2d43_out1 = self.conv2d43.forward(batchnormalization28_out1.clone());
        let batchnormalization29_out1 = self.batchnormalization29.forward(conv2d43_out1);
        let constant281_out1 = self.constant281.val();
        let add33_out1 = batchnormalization29_out1
            .clone()
            .add((constant281_out1).unsqueeze_dims(&[0isize, 1isize, 2isize]));
        let clip14_out1 = add33_out1.clamp(0f64, 6f64);
        let mul21_out1 = batchnormalization29_out1.mul(clip14_out1);
        let constant280_out1 = self.constant280.val();
        let div14_out1 = mul21_out1
            .div((constant280_out1).unsqueeze_dims(&[0isize, 1isize, 2isize]));
        (div14_out1, batchnormalization28_out1)
    }
}
#[derive(Module, Debug)]
pub struct Submodule4 {
    conv2d44: Conv2d,
    batchnormalization30: BatchNorm,
    constant285: burn::module::Param<Tensor<1>>,
    constant284: burn::module::Param<Tensor<1>>,
    globalaveragepool8: AdaptiveAvgPool2d,
    conv2d45: Conv2d,
    reshape15: burn::module::Param<Tensor<4>>,
    conv2d46: Conv2d,
    reshape16: burn::module::Param<Tensor<4>>,
    conv2d47: Conv2d,
    batchnormalization31: BatchNorm,
    conv2d48: Conv2d,
    batchnormalization32: BatchNorm,
    constant291: burn::module::Param<Tensor<1>>,
    constant290: burn::module::Param<Tensor<1>>,
    conv2d49: Conv2d,
    batchnormalization33: BatchNorm,
    constant295: burn::module::Param<Tensor<1>>,
    constant294: burn::module::Param<Tensor<1>>,
    globalaveragepool9: AdaptiveAvgPool2d,
    conv2d50: Conv2d,
    reshape17: burn::module::Param<Tensor<4>>,
    conv2d51: Conv2d,
    reshape18: burn::module::Param<Tensor<4>>,
    conv2d52: Conv2d,
    batchnormalization34: BatchNorm,
    conv2d53: Conv2d,
    batchnormalization35: BatchNorm,
    constant301: burn::module::Param<Tensor<1>>,
    constant300: burn::module::Param<Tensor<1>>,
    maxpool2d1: MaxPool2d,
    globalaveragepool10: AdaptiveAvgPool2d,
    constant308: burn::module::Param<Tensor<1, Int>>,
    linear1: Linear,
    #[module(skip)]
    device: Device,
}
impl Submodule4 {
    #[allow(unused_variables)]
    pub fn new(device: &Device) -> Self {
        let conv2d44 = Conv2dConfig::new([200, 200], [5, 5])
            .with_stride([1, 1])
            .with_padding(PaddingConfig2d::Explicit(2, 2, 2, 2))
            .with_dilation([1, 1])
            .with_groups(200)
            .with_bias(false)
            .init(device);
        let batchnormalization30 = BatchNormConfig::new(200)
            .with_epsilon(0.000009999999747378752f64)
            .with_momentum(0.8999999761581421f64)
            .init(device);
        let constant285: burn::module::Param<Tensor<1>> = burn::module::Param::uninitialized(
            burn::module::ParamId::new(),
            move |device, _require_grad| Tensor::<
                1,
            >::from_data(
                burn::tensor::TensorData::from([3f64]),
                (device, burn::tensor::DType::F32),
            ),
            device.clone(),
            false,
            [1].into(),
        );
        let constant284: burn::module::Param<Tensor<1>> = burn::module::Param::uninitialized(
            burn::module::ParamId::new(),
            move |device, _require_grad| Tensor::<
                1,
            >::from_data(
                burn::tensor::TensorData::from([6f64]),
                (device, burn::tensor::DType::F32),
            ),
            device.clone(),
            false,
            [1].into(),
        );
        let globalaveragepool8 = AdaptiveAvgPool2dConfig::new([1, 1]).init();
        let conv2d45 = Conv2dConfig::new([200, 50], [1, 1])
            .with_stride([1, 1])
            .with_padding(PaddingConfig2d::Valid)
            .with_dilation([1, 1])
            .with_groups(1)
            .with_bias(false)
            .init(device);
        let reshape15: burn::module::Param<Tensor<4>> = burn::module::Param::uninitialized(
            burn::module::ParamId::new(),
            move |device, _require_grad| Tensor::<
                4,
            >::zeros([1, 50, 1, 1], (device, burn::tensor::DType::F32)),
            device.clone(),
            false,
            [1, 50, 1, 1].into(),
        );
        let conv2d46 = Conv2dConfig::new([50, 200], [1, 1])
            .with_stride([1, 1])
            .with_padding(PaddingConfig2d::Valid)
            .with_dilation([1, 1])
            .with_groups(1)
            .with_bias(false)
            .init(device);
        let reshape16: burn::module::Param<Tensor<4>> = burn::module::Param::uninitialized(
            burn::module::ParamId::new(),
            move |device, _require_grad| Tensor::<
                4,
            >::zeros([1, 200, 1, 1], (device, burn::tensor::DType::F32)),
            device.clone(),
            false,
            [1, 200, 1, 1].into(),
        );
        let conv2d47 = Conv2dConfig::new([200, 32], [1, 1])
            .with_stride([1, 1])
            .with_padding(PaddingConfig2d::Valid)
            .with_dilation([1, 1])
            .with_groups(1)
            .with_bias(false)
            .init(device);
        let batchnormalization31 = BatchNormConfig::new(32)
            .with_epsilon(0.000009999999747378752f64)
            .with_momentum(0.8999999761581421f64)
            .init(device);
        let conv2d48 = Conv2dConfig::new([32, 200], [1, 1])
            .with_stride([1, 1])
            .with_padding(PaddingConfig2d::Valid)
            .with_dilation([1, 1])
            .with_groups(1)
            .with_bias(false)
            .init(device);
        let batchnormalization32 = BatchNormConfig::new(200)
            .with_epsilon(0.000009999999747378752f64)
            .with_momentum(0.8999999761581421f64)
            .init(device);
        let constant291: burn::module::Param<Tensor<1>> = burn::module::Param::uninitialized(
            burn::module::ParamId::new(),
            move |device, _require_grad| Tensor::<
                1,
            >::from_data(
                burn::tensor::TensorData::from([3f64]),
                (device, burn::tensor::DType::F32),
            ),
            device.clone(),
            false,
            [1].into(),
        );
        let constant290: burn::module::Param<Tensor<1>> = burn::module::Param::uninitialized(
            burn::module::ParamId::new(),
            move |device, _require_grad| Tensor::<
                1,
            >::from_data(
                burn::tensor::TensorData::from([6f64]),
                (device, burn::tensor::DType::F32),
            ),
            device.clone(),
            false,
            [1].into(),
        );
        let conv2d49 = Conv2dConfig::new([200, 200], [5, 5])
            .with_stride([1, 1])
            .with_padding(PaddingConfig2d::Explicit(2, 2, 2, 2))
            .with_dilation([1, 1])
            .with_groups(200)
            .with_bias(false)
            .init(device);
        let batchnormalization33 = BatchNormConfig::new(200)
            .with_epsilon(0.000009999999747378752f64)
            .with_momentum(0.8999999761581421f64)
            .init(device);
        let constant295: burn::module::Param<Tensor<1>> = burn::module::Param::uninitialized(
            burn::module::ParamId::new(),
            move |device, _require_grad| Tensor::<
                1,
            >::from_data(
                burn::tensor::TensorData::from([3f64]),
                (device, burn::tensor::DType::F32),
            ),
            device.clone(),
            false,
            [1].into(),
        );
        let constant294: burn::module::Param<Tensor<1>> = burn::module::Param::uninitialized(
            burn::module::ParamId::new(),
            move |device, _require_grad| Tensor::<
                1,
            >::from_data(
                burn::tensor::TensorData::from([6f64]),
                (device, burn::tensor::DType::F32),
            ),
            device.clone(),
            false,
            [1].into(),
        );
        let globalaveragepool9 = AdaptiveAvgPool2dConfig::new([1, 1]).init();
        let conv2d50 = Conv2dConfig::new([200, 50], [1, 1])
            .with_stride([1, 1])
            .with_padding(PaddingConfig2d::Valid)
            .with_dilation([1, 1])
            .with_groups(1)
            .with_bias(false)
            .init(device);
        let reshape17: burn::module::Param<Tensor<4>> = burn::module::Param::uninitialized(
            burn::module::ParamId::new(),
            move |device, _require_grad| Tensor::<
                4,
            >::zeros([1, 50, 1, 1], (device, burn::tensor::DType::F32)),
            device.clone(),
            false,
            [1, 50, 1, 1].into(),
        );
        let conv2d51 = Conv2dConfig::new([50, 200], [1, 1])
            .with_stride([1, 1])
            .with_padding(PaddingConfig2d::Valid)
            .with_dilation([1, 1])
            .with_groups(1)
            .with_bias(false)
            .init(device);
        let reshape18: burn::module::Param<Tensor<4>> = burn::module::Param::uninitialized(
            burn::module::ParamId::new(),
            move |device, _require_grad| Tensor::<
                4,
            >::zeros([1, 200, 1, 1], (device, burn::tensor::DType::F32)),
            device.clone(),
            false,
            [1, 200, 1, 1].into(),
        );
        let conv2d52 = Conv2dConfig::new([200, 32], [1, 1])
            .with_stride([1, 1])
            .with_padding(PaddingConfig2d::Valid)
            .with_dilation([1, 1])
            .with_groups(1)
            .with_bias(false)
            .init(device);
        let batchnormalization34 = BatchNormConfig::new(32)
            .with_epsilon(0.000009999999747378752f64)
            .with_momentum(0.8999999761581421f64)
            .init(device);
        let conv2d53 = Conv2dConfig::new([32, 200], [1, 1])
            .with_stride([1, 1])
            .with_padding(PaddingConfig2d::Valid)
            .with_dilation([1, 1])
            .with_groups(1)
            .with_bias(false)
            .init(device);
        let batchnormalization35 = BatchNormConfig::new(200)
            .with_epsilon(0.000009999999747378752f64)
            .with_momentum(0.8999999761581421f64)
            .init(device);
        let constant301: burn::module::Param<Tensor<1>> = burn::module::Param::uninitialized(
            burn::module::ParamId::new(),
            move |device, _require_grad| Tensor::<
                1,
            >::from_data(
                burn::tensor::TensorData::from([3f64]),
                (device, burn::tensor::DType::F32),
            ),
            device.clone(),
            false,
            [1].into(),
        );
        let constant300: burn::module::Param<Tensor<1>> = burn::module::Param::uninitialized(
            burn::module::ParamId::new(),
            move |device, _require_grad| Tensor::<
                1,
            >::from_data(
                burn::tensor::TensorData::from([6f64]),
                (device, burn::tensor::DType::F32),
            ),
            device.clone(),
            false,
            [1].into(),
        );
        let maxpool2d1 = MaxPool2dConfig::new([2, 2])
            .with_strides([2, 2])
            .with_padding(PaddingConfig2d::Valid)
            .with_dilation([1, 1])
            .with_ceil_mode(false)
            .init();
        let globalaveragepool10 = AdaptiveAvgPool2dConfig::new([1, 1]).init();
        let constant308: burn::module::Param<Tensor<1, Int>> = burn::module::Param::uninitialized(
            burn::module::ParamId::new(),
            move |device, _require_grad| Tensor::<
                1,
                Int,
            >::zeros([1], (device, burn::tensor::DType::I32)),
            device.clone(),
            false,
            [1].into(),
        );
        let linear1 = LinearConfig::new(200, 2).with_bias(true).init(device);
        Self {
            conv2d44,
            batchnormalization30,
            constant285,
            constant284,
            globalaveragepool8,
            conv2d45,
            reshape15,
            conv2d46,
            reshape16,
            conv2d47,
            batchnormalization31,
            conv2d48,
            batchnormalization32,
            constant291,
            constant290,
            conv2d49,
            batchnormalization33,
            constant295,
            constant294,
            globalaveragepool9,
            conv2d50,
            reshape17,
            conv2d51,
            reshape18,
            conv2d52,
            batchnormalization34,
            conv2d53,
            batchnormalization35,
            constant301,
            constant300,
            maxpool2d1,
            globalaveragepool10,
            constant308,
            linear1,
            device: device.clone(),
        }
    }
    #[allow(clippy::let_and_return, clippy::approx_constant)]
    pub fn forward(
        &self,
        div14_out1: Tensor<4>,
        batchnormalization28_out1: Tensor<4>,
    ) -> Tensor<2> {
        let conv2d44_out1 = self.conv2d44.forward(div14_out1);
        let batchnormalization30_out1 = self.batchnormalization30.forward(conv2d44_out1);
        let constant285_out1 = self.constant285.val();
        let add34_out1 = batchnormalization30_out1
            .clone()
            .add((constant285_out1).unsqueeze_dims(&[0isize, 1isize, 2isize]));
        let clip15_out1 = add34_out1.clamp(0f64, 6f64);
        let mul22_out1 = batchnormalization30_out1.mul(clip15_out1);
        let constant284_out1 = self.constant284.val();
        let div15_out1 = mul22_out1
            .div((constant284_out1).unsqueeze_dims(&[0isize, 1isize, 2isize]));
        let globalaveragepool8_out1 = self
            .globalaveragepool8
            .forward(div15_out1.clone());
        let conv2d45_out1 = self.conv2d45.forward(globalaveragepool8_out1);
        let reshape15_out1 = self.reshape15.val();
        let add35_out1 = conv2d45_out1.add(reshape15_out1);
        let relu14_out1 = burn::tensor::activation::relu(add35_out1);
        let conv2d46_out1 = self.conv2d46.forward(relu14_out1);
        let reshape16_out1 = self.reshape16.val();
        let add36_out1 = conv2d46_out1.add(reshape16_out1);
        let hardsigmoid8_out1 = burn::tensor::activation::hard_sigmoid(
            add36_out1,
            0.20000000298023224,
            0.5,
        );
        let mul23_out1 = div15_out1.mul(hardsigmoid8_out1);
        let conv2d47_out1 = self.conv2d47.forward(mul23_out1);
        let batchnormalization31_out1 = self.batchnormalization31.forward(conv2d47_out1);
        let add37_out1 = batchnormalization28_out1.add(batchnormalization31_out1);
        let conv2d48_out1 = self.conv2d48.forward(add37_out1.clone());
        let batchnormalization32_out1 = self.batchnormalization32.forward(conv2d48_out1);
        let constant291_out1 = self.constant291.val();
        let add38_out1 = batchnormalization32_out1
            .clone()
            .add((constant291_out1).unsqueeze_dims(&[0isize, 1isize, 2isize]));
        let clip16_out1 = add38_out1.clamp(0f64, 6f64);
        let mul24_out1 = batchnormalization32_out1.mul(clip16_out1);
        let constant290_out1 = self.constant290.val();
        let div16_out1 = mul24_out1
            .div((constant290_out1).unsqueeze_dims(&[0isize, 1isize, 2isize]));
        let conv2d49_out1 = self.conv2d49.forward(div16_out1);
        let batchnormalization33_out1 = self.batchnormalization33.forward(conv2d49_out1);
        let constant295_out1 = self.constant295.val();
        let add39_out1 = batchnormalization33_out1
            .clone()
            .add((constant295_out1).unsqueeze_dims(&[0isize, 1isize, 2isize]));
        let clip17_out1 = add39_out1.clamp(0f64, 6f64);
        let mul25_out1 = batchnormalization33_out1.mul(clip17_out1);
        let constant294_out1 = self.constant294.val();
        let div17_out1 = mul25_out1
            .div((constant294_out1).unsqueeze_dims(&[0isize, 1isize, 2isize]));
        let globalaveragepool9_out1 = self
            .globalaveragepool9
            .forward(div17_out1.clone());
        let conv2d50_out1 = self.conv2d50.forward(globalaveragepool9_out1);
        let reshape17_out1 = self.reshape17.val();
        let add40_out1 = conv2d50_out1.add(reshape17_out1);
        let relu15_out1 = burn::tensor::activation::relu(add40_out1);
        let conv2d51_out1 = self.conv2d51.forward(relu15_out1);
        let reshape18_out1 = self.reshape18.val();
        let add41_out1 = conv2d51_out1.add(reshape18_out1);
        let hardsigmoid9_out1 = burn::tensor::activation::hard_sigmoid(
            add41_out1,
            0.20000000298023224,
            0.5,
        );
        let mul26_out1 = div17_out1.mul(hardsigmoid9_out1);
        let conv2d52_out1 = self.conv2d52.forward(mul26_out1);
        let batchnormalization34_out1 = self.batchnormalization34.forward(conv2d52_out1);
        let add42_out1 = add37_out1.add(batchnormalization34_out1);
        let conv2d53_out1 = self.conv2d53.forward(add42_out1);
        let batchnormalization35_out1 = self.batchnormalization35.forward(conv2d53_out1);
        let constant301_out1 = self.constant301.val();
        let add43_out1 = batchnormalization35_out1
            .clone()
            .add((constant301_out1).unsqueeze_dims(&[0isize, 1isize, 2isize]));
        let clip18_out1 = add43_out1.clamp(0f64, 6f64);
        let mul27_out1 = batchnormalization35_out1.mul(clip18_out1);
        let constant300_out1 = self.constant300.val();
        let div18_out1 = mul27_out1
            .div((constant300_out1).unsqueeze_dims(&[0isize, 1isize, 2isize]));
        let maxpool2d1_out1 = self.maxpool2d1.forward(div18_out1);
        let globalaveragepool10_out1 = self.globalaveragepool10.forward(maxpool2d1_out1);
        let constant308_out1 = self.constant308.val();
        let cast3_out1 = constant308_out1.cast(burn::tensor::DType::I64);
        let slice1_out1: [i64; 1] = [-1i64];
        let concat1_out1: [i64; 2usize] = {
            let mut shape_parts = alloc::vec::Vec::with_capacity(2usize);
            shape_parts.extend_from_slice(&slice1_out1[..]);
            let tensor_data_1 = cast3_out1.cast(burn::tensor::DType::I64).to_data();
            shape_parts.extend(tensor_data_1.iter::<i64>());
            assert_eq!(
                shape_parts.len(), 2usize,
                "Concat {}: expected {} shape elements, got {}", "concat1", 2usize,
                shape_parts.len()
            );
            shape_parts.try_into().expect("length checked above")
        };
        let reshape19_out1 = globalaveragepool10_out1.reshape(concat1_out1);
        let linear1_out1 = self.linear1.forward(reshape19_out1);
        let softmax1_out1 = burn::tensor::activation::softmax(linear1_out1, 1);
        softmax1_out1
    }
}

#[derive(Module, Debug)]
pub struct Model {
    submodule1: Submodule1,
    submodule2: Submodule2,
    submodule3: Submodule3,
    submodule4: Submodule4,
    #[module(skip)]
    device: Device,
}


extern crate std;

impl Default for Model {
    fn default() -> Self {
        Self::from_file("./classifier.bpk", &Default::default())
    }
}

impl Model {
    /// Load model weights from a burnpack file.
    pub fn from_file<P: AsRef<std::path::Path>>(file: P, device: &Device) -> Self {
        let mut model = Self::new(device);
        let mut store = BurnpackStore::from_file(&file);
        model
            .load_from(&mut store)
            .unwrap_or_else(|e| {
                panic!("Failed to load burnpack file {}: {e}", file.as_ref().display())
            });
        model
    }

    /// Load model weights from in-memory bytes.
    ///
    /// The bytes must be the contents of a `.bpk` file.
    pub fn from_bytes(bytes: Bytes, device: &Device) -> Self {
        let mut model = Self::new(device);
        let mut store = BurnpackStore::from_bytes(Some(bytes));
        model
            .load_from(&mut store)
            .unwrap_or_else(|e| panic!("Failed to load burnpack bytes: {e}"));
        model
    }
}

impl Model {
    #[allow(unused_variables)]
    pub fn new(device: &Device) -> Self {
        let submodule1 = Submodule1::new(device);
        let submodule2 = Submodule2::new(device);
        let submodule3 = Submodule3::new(device);
        let submodule4 = Submodule4::new(device);
        Self {
            submodule1,
            submodule2,
            submodule3,
            submodule4,
            device: device.clone(),
        }
    }

    #[allow(clippy::let_and_return, clippy::approx_constant)]
    pub fn forward(&self, x: Tensor<4>) -> Tensor<2> {
        let mul5_out1 = self.submodule1.forward(x);
        let add23_out1 = self.submodule2.forward(mul5_out1);
        let (div14_out1, batchnormalization28_out1) = self
            .submodule3
            .forward(add23_out1);
        let softmax1_out1 = self
            .submodule4
            .forward(div14_out1, batchnormalization28_out1);
        softmax1_out1
    }
}
