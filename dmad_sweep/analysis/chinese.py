"""Simplified Chinese for every template of `tr`. Titles of columns may be broken at BREAK."""

from dmad_sweep.analysis.typography import BREAK

TITLES = {
    "resolution": "分辨率",
    "batch": "批量",
    "accumulation": "累积步数",
    "effective batch": f"等效{BREAK}批量",
    "precision": "精度",
    "checkpointing": "激活重算",
    "adapter": "适配器",
    "attention": "注意力内核",
    "optimizer": "优化器",
    "ema": "EMA",
    "peak allocated GiB": f"峰值{BREAK}已分配 GiB",
    "over baseline GiB": f"超出{BREAK}基线 GiB",
    "peak allocated / over baseline GiB": f"峰值{BREAK}已分配 / 超出{BREAK}基线 GiB",
    "peak in": f"峰值{BREAK}阶段",
    "device peak GiB": f"设备{BREAK}峰值 GiB",
    "headroom GiB": "余量 GiB",
    "iteration time ms": f"迭代{BREAK}时间 ms",
    "data time ms": f"数据{BREAK}等待 ms",
    "images/s": f"图像{BREAK}/秒",
    "gradient L2": "梯度 L2",
    "verdict": "结论",
    "peak against above": f"峰值比{BREAK}上一行",
    "time against above": f"时间比{BREAK}上一行",
    "overflow": "溢出",
    "weights GiB": "权重 GiB",
    "gradients GiB": "梯度 GiB",
    "states GiB": f"优化器{BREAK}状态 GiB",
    "activations GiB": "激活 GiB",
    "fragmentation GiB": "碎片 GiB",
    "context GiB": "上下文 GiB",
    "unexplained": "未解释",
    "remarks": "备注",
}

NAMES = {
    "model": "模型",
    "recipe": "训练方案",
    "phase": "任务",
    "data": "数据",
    "student_update_freq": "学生更新周期",
    "device": "设备",
    "driver": "驱动",
    "torch": "torch",
    "code": "代码",
    "pretrained": "预训练权重",
    "machine": "机器",
    "libraries": "依赖库",
    "environment": "环境变量",
    "its default": "默认值",
    "unknown": "未知",
    " with {size} GiB": "，{size} GiB",
    " limited to {size} GiB": "，限制为 {size} GiB",
}

OVERFLOWS = {
    "no": "否",
    "load OOM": "加载 OOM",
    "forward OOM": "前向 OOM",
    "backward OOM": "反向 OOM",
    "optimizer OOM": "优化器 OOM",
    "step-{cycle} OOM": "第 {cycle} 步 OOM",
    "{what}, {count} of {all}": "{what}，{all} 次中 {count} 次",
    "invalid": "无效组合",
    "timeout": "超时",
    "killed": "被终止",
    "failed": "失败",
}

REMARKS = {
    "what to change": "改什么",
    "in a table of its own: {why}": "单独成表：{why}",
    "effective batch as batch": "等效批量与批量相同",
    "effective batch = batch × accumulation": "等效批量 = 批量 × 累积步数",
    "{count} repeats: the highest peaks, ± half their range; times of all their cycles": (
        "重复 {count} 次：取最高峰值，± 为极差的一半；时间取自全部周期"
    ),
    "differs in {variable} too: {here}, elsewhere {there}": "{variable} 也不同：此处 {here}，其余 {there}",
    "asked for {size} more when memory ran out": "显存耗尽时还在申请 {size}",
    "up to {size} GiB": "最多 {size} GiB",
    "some": "一部分",
    "peak is the process's memory above its start: a CPU has no allocator to ask": (
        "峰值是进程内存超出启动时的部分：CPU 没有可查询的分配器"
    ),
    "on an emulated card: the allocator was limited, algorithms still saw the real device": (
        "模拟显卡：只限制了分配器，算法看到的仍是真实设备"
    ),
    "others used {used_before} of the device before the trial: device peak and headroom count that in, and "
    "times are not the trial's alone": (
        "试验开始前其他进程已占用设备 {used_before}：设备峰值与余量已计入这部分，时间也不只反映本次试验"
    ),
    "another process used the device during the trial: peaks of the device and times are not the trial's "
    "alone": ("试验期间有其他进程使用设备：设备峰值与时间不只反映本次试验"),
    "processes that the trial had started still ran after its end, and were killed": (
        "试验结束后，它启动的进程仍在运行，已被终止"
    ),
    "not all of the trial's memory was free again after its end": "试验结束后，其显存没有全部释放",
    "probably out of memory: the library's error does not say so for certain": (
        "很可能是显存不足：库给出的错误信息不足以确定"
    ),
    "the peak is that of the stages before: more may have been in use at the end": (
        "峰值来自此前各阶段：结束时的实际占用可能更多"
    ),
    "the allocator had to free its cache and retry: times are not comparable": (
        "分配器曾释放缓存后重试：时间不可比较"
    ),
    "some optimizer never stepped (loss scaling skipped it): its states are missing": (
        "有优化器从未更新（被损失缩放跳过）：缺少它的状态"
    ),
    "taken over from sweep {reused_from}, which measured it under the same conditions": (
        "取自扫描 {reused_from}，它在相同条件下测过"
    ),
    "launch-bound: the device waits for the host, and a larger batch costs little time": (
        "受限于内核启动：设备在等待主机，增大批量几乎不增加时间"
    ),
    "cuDNN's attention ran before this fault: try attention=flash or efficient": (
        "出错前运行的是 cuDNN 注意力：请试 attention=flash 或 efficient"
    ),
    "the allocator's history was recorded, which takes time: times are not comparable": (
        "记录了分配器历史，这会占用时间：时间不可比较"
    ),
    "checkpointing was asked for and nothing was recomputed": "要求了激活重算，但没有发生任何重算",
    "the tensors had another micro-batch than was asked for": "张量的微批量与要求的不同",
    "the tensors had another size than was asked for": "张量的尺寸与要求的不同",
}

ADVICE = {
    "{rows} ran out of memory in a first backward: activations are the pressure, so lower the batch or "
    "recompute more. By what is saved for the time it takes: {options}": (
        "{rows} 在首次反向时显存不足：压力来自激活，应减小批量或增加重算。按单位时间代价节省的显存排序：{options}"
    ),
    "{rows} ran out of memory in a first forward: it is not the batch. What is left to change: {options}": (
        "{rows} 在首次前向时显存不足：原因不在批量。还可以改的有：{options}"
    ),
    "{rows} ran out of memory where the batch counts for little": "{rows} 显存不足之处几乎与批量无关",
    "the peak of {rows} is hardly above that of half the batch": "{rows} 的峰值与批量减半时相差无几",
    "{why}: the floor holds it, and neither batch nor resolution lowers that.": (
        "{why}：占用来自固定部分，减小批量或分辨率都不能降低它。"
    ),
    "It is made of weights {weights} GiB, gradients {gradients} GiB and optimizer states {states} GiB.": (
        "其中权重 {weights} GiB、梯度 {gradients} GiB、优化器状态 {states} GiB。"
    ),
    "What lowers it: {options}": "能降低它的有：{options}",
    "the allocator holds {size} GiB that no tensor uses, so its blocks fit ever worse: try "
    "PYTORCH_ALLOC_CONF=expandable_segments:True": (
        "分配器持有 {size} GiB 未被任何张量使用的显存，碎片越来越多：请试 "
        "PYTORCH_ALLOC_CONF=expandable_segments:True"
    ),
    "memory.snapshot=true keeps what is live when it happens": "memory.snapshot=true 可保留出错时的存活张量",
    "{row} ran out of memory in {stage} of cycle {cycle}, after cycles that had fitted: weights, gradients "
    "and optimizer states were all there before, so something grew or came late; {why}": (
        "{row} 在第 {cycle} 个周期的 {stage} 显存不足，而此前的周期都放得下：权重、梯度与优化器状态早已存在，"
        "说明有占用在增长或出现较晚；{why}"
    ),
    "{rows}: {left} GiB of {card} GiB are left at the least, and {kept} GiB should be ({why}). Move the batch "
    "first: its effect is the closest to linear": (
        "{rows}：{card} GiB 中最少只剩 {left} GiB，而应保留 {kept} GiB（{why}）。先调批量：它的影响最接近线性"
    ),
    "target.headroom_gib": "target.headroom_gib",
    "for fragmentation, retries of the allocator and other processes": "留给碎片、分配器重试和其他进程",
    "; one sample less frees {size} GiB": "；少一个样本可释放 {size} GiB",
    "{row} waits for data {share}% of its time: more data.workers, or data.cache=true, before a larger "
    "batch": "{row} 有 {share}% 的时间在等待数据：先增加 data.workers 或设 data.cache=true，再增大批量",
    "{row} leaves {left} GiB, but images/s no longer grow with the batch ({before} → {now}): a larger one "
    "brings nothing": "{row} 还剩 {left} GiB，但图像/秒不再随批量增长（{before} → {now}）：再增大批量没有收益",
    "{row} leaves {left} GiB and images/s still grow with the batch ({before} → {now}): batch={batch} is "
    "expected to peak at {peak} GiB": (
        "{row} 还剩 {left} GiB，图像/秒仍随批量增长（{before} → {now}）：batch={batch} 预计峰值 {peak} GiB"
    ),
    "training needs {resolution}, and {row} leaves {left} GiB: batch={batch} resolution={resolution} is "
    "expected to peak at {peak} GiB": (
        "训练需要 {resolution}，而 {row} 还剩 {left} GiB：batch={batch} resolution={resolution} 预计峰值 {peak} GiB"
    ),
    " with {rate} images/s": "，{rate} 图像/秒",
    "; the device waits for the host here, so samples cost little time": (
        "；这里设备在等待主机，多加样本几乎不增加时间"
    ),
    "no micro-batch of {effective} fits at {resolution}: batch={batch} accumulation={steps} makes it up": (
        "{resolution} 下放不下 {effective} 的微批量：可用 batch={batch} accumulation={steps} 代替"
    ),
    "; measured: {peak} GiB and {time} ms an iteration": "；实测：{peak} GiB，每次迭代 {time} ms",
    "; expected: at most {peak} GiB, since a set of gradients stays beside the activations, and about {time} "
    "ms an iteration": "；预计：一组梯度与激活并存，故最多 {peak} GiB，每次迭代约 {time} ms",
    "measured: {peak} GiB": "实测：{peak} GiB",
    ", about {size} GiB less": "，约少 {size} GiB",
    "; {images} images take {time} ms more": "；{images} 张图像多用 {time} ms",
    "not measured yet": "尚未测量",
    "batch {batch} at {resolution}": "批量 {batch}、分辨率 {resolution}",
}

EFFECTS = {
    "measured at {where}: {size} GiB less": "在{where}实测：少 {size} GiB",
    ", {time} ms more": "，多 {time} ms",
    ", no slower": "，不变慢",
    "counted: {size} GiB, {why}": "推算：{size} GiB，{why}",
    "three quarters of the optimizer states": "优化器状态的四分之三",
    "at most: foreach's temporaries, up to the next stage": "最多：foreach 的临时张量，至次高阶段为止",
    "gradients and states of whole networks": "整个网络的梯度与状态",
    "half of what is trained; another regime": "被训练部分的一半；属于另一种精度方案",
    "the averaged weights move to the host": "平均权重移到主机内存",
}

ESTIMATES = {
    "unchecked": "未校验",
    "estimated, not measured: {cell} peaks at {peak} GiB ({error}) in {stage}": (
        "估算而非实测：{cell} 的峰值为 {peak} GiB（{error}），位于 {stage}"
    ),
    ", {time} ms an iteration": "，每次迭代 {time} ms",
}

DECISION = {
    "train with": "建议用",
    "second best": "次选",
    "nothing is known yet of effective batch {batch} at {resolution}: measure batch=1 at "
    "resolution={resolution} and at a smaller one": (
        "尚无分辨率 {resolution}、等效批量 {batch} 的数据：请在 resolution={resolution} 与一个更小的分辨率下测 "
        "batch=1"
    ),
    "measured: peak {peak} GiB": "实测：峰值 {peak} GiB",
    "at most": "最多",
    "estimated, not measured: peak {peak} GiB": "估算而非实测：峰值 {peak} GiB",
    "{size} GiB beyond the {kept} GiB to keep": "除需保留的 {kept} GiB 外还余 {size} GiB",
    "{time} ms an iteration, {rate} images/s": "每次迭代 {time} ms，{rate} 图像/秒",
    "from two sizes, which leaves nothing to check it by: {error}% on top": (
        "仅由两种尺寸得出，无从校验：另加 {error}%"
    ),
    "each measured cell is met within {error}% by the others": "每个实测点由其余各点估算，误差在 {error}% 以内",
    ", larger than any of them": "，大于任何实测点",
    "nothing fits at {resolution} with effective batch {batch}: {overrides} comes nearest and lacks {size} "
    "GiB": "分辨率 {resolution}、等效批量 {batch} 时都放不下：最接近的是 {overrides}，还差 {size} GiB",
    "; the smallest change that makes up for it: {change}": "；能补足它的最小改动：{change}",
    "; it would fit at resolution={resolution}": "；resolution={resolution} 时放得下",
    "; no change that is known of makes up for it": "；已知的改动都不足以补上",
}

COMPARISON = {
    "peak GiB, first": "峰值 GiB，甲",
    "peak GiB, second": "峰值 GiB，乙",
    "ratio": "乙/甲",
    "iteration ms, first": "迭代 ms，甲",
    "iteration ms, second": "迭代 ms，乙",
    "overflow, first": "溢出，甲",
    "overflow, second": "溢出，乙",
    "first: {first}; second: {second}": "甲：{first}；乙：{second}",
    "{variable}: {here} and {there}": "{variable}：{here} 与 {there}",
    "they differ in {what}": "两者的不同：{what}",
    "the numbers do not transfer between machines: a ratio found here says nothing of another model, size or "
    "machine": "数字不能在机器之间套用：这里的比值不能说明其他模型、尺寸或机器",
    "no combination is in both": "没有两者共有的组合",
    "left out: {first} combinations of the first and {second} of the second that the other lacks": (
        "未列出：仅甲有的组合 {first} 个，仅乙有的 {second} 个"
    ),
}

PLOTS = {
    "peak against batch": "峰值与批量",
    "iteration time against batch": "迭代时间与批量",
    "memory against time": "显存与时间",
    "what the peaks are made of": "峰值的构成",
    "micro-batch": "微批量",
    "peak allocated, GiB": "峰值已分配，GiB",
    "time of an iteration, ms": "每次迭代时间，ms",
    "time of an image, ms": "每张图像时间，ms",
    "limit of the card: {size} GiB": "显卡上限：{size} GiB",
    "out of memory, at the limit": "显存不足，标在上限处",
    "out of memory": "显存不足",
    "front at {resolution}": "{resolution} 的帕累托前沿",
    "beaten in both by another": "两方面都不如另一行",
    "memory of the device at the peak, GiB": "峰值时刻的设备显存，GiB",
    "weights": "权重",
    "gradients": "梯度",
    "optimizer states": "优化器状态",
    "activations and workspaces": "激活与工作区",
    "fragmentation": "碎片",
    "context": "上下文",
}

CHINESE: dict[str, str] = (
    TITLES | NAMES | OVERFLOWS | REMARKS | ADVICE | EFFECTS | ESTIMATES | DECISION | COMPARISON | PLOTS
)
