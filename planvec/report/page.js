// Copies the decision of the step on the slider into the plots. Bokeh draws; nothing here does.
(function () {
  const data = JSON.parse(document.getElementById("data").textContent);
  const last = data.decisions.length;
  const model = (name) => Bokeh.documents[0].get_model_by_name(name) ||
    [...Bokeh.documents[0]._all_models.values()].find((one) => one.name === name);
  const shown = (value) => value === null ? "-" : Number(value).toPrecision(5).replace(/\.?0+$/, "");

  function fill(step) {
    const decision = data.decisions[Math.min(step, last - 1)];
    const places = decision.places, chosen = decision.chosen;
    const isNumber = places.some((place, index) => place !== index);  // else names in a row
    const low = Math.min(...places), high = Math.max(...places);
    const span = isNumber ? Math.max(high - low, 1e-9) : places.length;
    model("actions").data = {
      x: places, visits: decision.visits, action: decision.actions,
      value: decision.returns.map(shown), width: places.map(() => isNumber ? span / 50 : 0.8),
      color: places.map((_, index) => index === chosen ? "#E69F00" : "#0072B2"),
    };
    model("chosen").data = {x: [places[chosen]], y: [0]};
    const range = model("action_range");
    range.start = isNumber ? low - span / 15 : -0.6;
    range.end = isNumber ? high + span / 15 : places.length - 0.4;
    const axis = model("action_axis"), longest = Math.max(...decision.actions.map((name) => name.length));
    axis.ticker = isNumber ? new (Bokeh.Models.get("BasicTicker"))()
      : new (Bokeh.Models.get("FixedTicker"))({ticks: places});
    axis.major_label_overrides = new Map(
      isNumber ? [] : decision.actions.map((name, index) => [index, longest <= 20 ? name : ""]));
    axis.major_label_orientation = !isNumber && longest * places.length > 60 ? "vertical" : "horizontal";
    model("lines").data = {
      xs: decision.lines.map((line) => line[0]), ys: decision.lines.map((line) => line[1]),
      color: decision.is_best.map((best) => best ? "#D55E00" : "#8a8a8a"),
      width: decision.is_best.map((best) => best ? 2.5 : 0.8),
    };
    const numbers = decision.values.filter((value) => value !== null);
    const mapper = model("values");
    mapper.low = numbers.length ? Math.min(...numbers) : 0;
    mapper.high = numbers.length ? Math.max(Math.max(...numbers), mapper.low + 1e-9) : 1;
    model("points").data = {
      x: decision.x, y: decision.y, size: decision.sizes, value: decision.values, label: decision.labels,
    };
    model("now").location = step;
  }

  function facts(step) {
    const decision = data.decisions[Math.min(step, last - 1)];
    const rows = step < last
      ? [["action", decision.action], ["value", shown(decision.value)],
         ["reward of this step", shown(data.rewards[step])],
         ["return so far", shown(step ? data.returns[step - 1] : 0)],
         ["simulations", decision.num_simulations.toLocaleString("en")],
         ["environment steps", decision.num_env_steps.toLocaleString("en")],
         ["seconds", shown(decision.seconds)]]
      : [["the episode is over, return", shown(last ? data.returns[last - 1] : 0)]];
    const table = document.getElementById("facts");
    table.replaceChildren(...rows.map(([name, value]) => {
      const row = document.createElement("tr");
      for (const text of [name, value]) row.appendChild(document.createElement("td")).textContent = text;
      return row;
    }));
  }

  window.planvecShow = function (step) {
    const frame = document.getElementById("frame");
    frame.hidden = !data.frames.length;
    document.getElementById("noframe").hidden = Boolean(data.frames.length);
    if (data.frames.length) frame.src = data.frames[Math.min(step, data.frames.length - 1)];
    facts(step);
    if (last) fill(step);
    document.documentElement.dataset.step = step;
  };

  function move(by) {
    const slider = model("step");
    slider.value = Math.max(0, Math.min(last, slider.value + by));
    return slider.value < last;
  }

  let timer = null;
  function play() {
    const button = document.getElementById("play");
    if (timer) { clearInterval(timer); timer = null; button.textContent = "play"; return; }
    button.textContent = "stop";
    timer = setInterval(() => { if (!move(1)) play(); }, 100);
  }

  function begin() {
    if (!Bokeh.documents.length || !model("step")) { setTimeout(begin, 20); return; }
    document.getElementById("back").onclick = () => move(-1);
    document.getElementById("next").onclick = () => move(1);
    document.getElementById("play").onclick = play;
    document.addEventListener("keydown", (event) => {
      if (event.key === "ArrowLeft") move(-1);
      if (event.key === "ArrowRight") move(1);
    });
    const start = Number((location.hash.match(/step=(\d+)/) || [0, 0])[1]);  // report.html#step=12
    if (start) model("step").value = Math.min(last, start);
    else window.planvecShow(0);
  }
  document.addEventListener("DOMContentLoaded", begin);
})();
