"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const total = data.ids.length, page = 48, bins = 20;
  const byId = (id) => document.getElementById(id);
  const svgNode = (name, attributes = {}) => {
    const node = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    return node;
  };
  const { node } = charts;
  const named = (label) => (label < 0 ? "right answer not known" : data.classes[label] ?? String(label));
  const metrics = Object.keys(data.scores);
  const pictures = new Map(data.pictures.map((entry) => [entry.row, entry]));
  const blank = () => ({ case: "", label: "", prediction: "", sort: "", ranges: {} });
  let state = blank(), visible = page;

  // --- the state is kept behind the # of the address, so that a view can be sent to somebody ---
  const remember = () => {
    const words = new URLSearchParams();
    for (const key of ["case", "label", "prediction", "sort"]) if (state[key] !== "") words.set(key, state[key]);
    for (const [name, [low, high]] of Object.entries(state.ranges)) words.set(name, `${low}-${high}`);
    try { history.replaceState(null, "", `#${words}`); } catch { /* a page without an address */ }
  };
  const recall = () => {
    const words = new URLSearchParams(location.hash.slice(1));
    state = blank();
    // what no menu offers is left out: a view must be one that can be seen and changed
    for (const key of ["case", "label", "prediction", "sort"]) if ([...byId(key).options].some((option) => option.value === words.get(key))) state[key] = words.get(key);
    for (const name of data.histograms) {
      const ends = /^([\d.]+)-([\d.]+)$/.exec(words.get(name) ?? "")?.slice(1).map(Number) ?? [];
      if (ends.length === 2 && ends[0] >= 0 && ends[1] <= 1 && ends[0] <= ends[1]) state.ranges[name] = ends;
    }
  };

  // --- filters ---
  // to two decimals, halves to the even one, as the eight cases are
  const rounded = (value) => { const all = value * 100, down = Math.floor(all); return (all - down === 0.5 ? down + (down % 2) : Math.round(all)) / 100; };
  const inRange = (row, skip) => Object.entries(state.ranges).every(([name, [low, high]]) => {
    const value = data.scores[name][row];
    return name === skip || (value !== null && rounded(value) >= low && rounded(value) <= high);
  });
  const keeps = (row, skip) => {
    if (state.case !== "" && !(data.members[row] & (1 << state.case))) return false;
    if (state.label !== "" && data.label[row] !== Number(state.label)) return false;
    if (state.prediction === "right" && data.right[row] !== 1) return false;
    if (state.prediction === "wrong" && data.right[row] !== 0) return false;
    if (/^\d+$/.test(state.prediction) && data.prediction[row] !== Number(state.prediction)) return false;
    return inRange(row, skip);
  };
  const rows = (skip = "") => [...Array(total).keys()].filter((row) => keeps(row, skip));
  const order = () => {
    if (state.sort) { const [name, way] = state.sort.split(" "); return [name, way === "down"]; }
    return state.case !== "" ? data.cases[state.case].sort : null;
  };
  const sorted = (kept) => {
    const how = order();
    if (!how || !(data.scores[how[0]] || how[0] === "confidence")) return kept;
    const values = how[0] === "confidence" ? data.confidence : data.scores[how[0]];
    const sign = how[1] ? -1 : 1;
    return kept.sort((a, b) => {
      if (values[a] === null || values[b] === null) return (values[a] === null) - (values[b] === null);
      return sign * (values[a] - values[b]) || a - b;
    });
  };

  // --- histograms: Vega-Lite draws bars and tells what is brushed; the range itself is kept in the state ---
  const binOf = (value) => Math.min(bins - 1, Math.floor(value * bins));
  const counts = (name, kept) => {
    const found = new Array(bins).fill(0);
    for (const row of kept) if (data.scores[name][row] !== null) found[binOf(data.scores[name][row])] += 1;
    return found;
  };
  const across = { type: "quantitative", scale: { domain: [0, 1] }, axis: { title: null, values: [0, 0.5, 1], grid: false, labelFlush: true, labelFontSize: 10 } };
  const spans = { x: { ...across, field: "from" }, x2: { field: "to" } };
  const bars = (field, fill) => ({
    mark: { type: "rect", fill, stroke: "var(--card)", strokeWidth: 1 },
    encoding: { ...spans, y: { field, type: "quantitative", axis: null }, y2: { datum: 0 }, tooltip: ["from", "to", "kept", "all"].map((name) => ({ field: name, type: "quantitative" })) },
  });
  const brush = { name: "brush", select: { type: "interval", encodings: ["x"], translate: false, zoom: false, mark: { fillOpacity: 0, strokeOpacity: 0 } } };
  const picture = {
    height: 58,
    layer: [
      { ...bars("all", "var(--rule)"), params: [brush] },
      bars("kept", "var(--accent)"),
      { data: { name: "range", values: [] }, mark: { type: "rect", fill: "#e8a01a", fillOpacity: 0.25, stroke: "#c77f00", tooltip: null }, encoding: spans },
    ],
  };
  const step = (value) => Math.round(Math.min(1, Math.max(0, value)) * 2 * bins) / (2 * bins);
  const histograms = data.histograms.map((name) => {
    const box = node("div", "histogram"), title = node("h3", "", name), ends = node("span"), canvas = node("div", "canvas");
    const inputs = ["from", "to"].map((word, place) => {
      const input = node("input");
      Object.assign(input, { type: "number", min: 0, max: 1, step: 0.05 });
      input.setAttribute("aria-label", `${name} ${word}`);
      input.addEventListener("change", () => {
        const range = [...(state.ranges[name] ?? [0, 1])];
        range[place] = Math.min(1, Math.max(0, Number(input.value)));
        setRange(name, Math.min(...range), Math.max(...range));
      });
      return input;
    });
    canvas.setAttribute("aria-hidden", "true"); // the two fields do and say the same
    ends.append(inputs[0], " to ", inputs[1]);
    title.append(ends);
    box.append(title, canvas);
    byId("histograms").append(box);
    const everything = counts(name, [...Array(total).keys()]);
    const table = () => counts(name, rows(name)).map((kept, bin) => ({ from: bin / bins, to: (bin + 1) / bins, kept, all: everything[bin] }));
    const drawn = charts.draw(canvas, picture, table()).then((view) => {
      charts.views.set(name, view);
      view.addSignalListener("brush", (signal, value) => {
        const range = value.from;
        if (!range) { if (state.ranges[name]) { delete state.ranges[name]; update(); } return; }
        const [low, high] = [step(Math.min(...range)), step(Math.max(...range))];
        if (high > low) setRange(name, low, high);
      });
      return view;
    });
    drawn.catch((error) => { canvas.textContent = "This chart could not be drawn."; console.error(error); });
    return async () => {
      const [low, high] = state.ranges[name] ?? [0, 1];
      inputs[0].value = low.toFixed(2);
      inputs[1].value = high.toFixed(2);
      const view = await drawn;
      view.data("rows", table()).data("range", state.ranges[name] ? [{ from: low, to: high }] : []);
      await view.runAsync();
    };
  });
  const setRange = (name, low, high) => {
    state.ranges[name] = [Number(low.toFixed(3)), Number(high.toFixed(3))];
    update();
  };

  // --- pictures ---
  const bits = (text, count) => {
    const bytes = atob(text), found = new Uint8Array(count);
    for (let place = 0; place < count; place += 1) found[place] = (bytes.charCodeAt(place >> 3) >> (7 - (place & 7))) & 1;
    return found;
  };
  const outline = (region, high, wide) => {
    const parts = [], at = (y, x) => (y < 0 || x < 0 || y >= high || x >= wide ? 0 : region[y * wide + x]);
    for (let y = 0; y <= high; y += 1) {
      for (let x = 0; x < wide; x += 1) {
        if (at(y, x) === at(y - 1, x)) continue;
        const from = x;
        while (x < wide && at(y, x) !== at(y - 1, x)) x += 1;
        parts.push(`M${from} ${y}H${x}`);
      }
    }
    for (let x = 0; x <= wide; x += 1) {
      for (let y = 0; y < high; y += 1) {
        if (at(y, x) === at(y, x - 1)) continue;
        const from = y;
        while (y < high && at(y, x) !== at(y, x - 1)) y += 1;
        parts.push(`M${x} ${from}V${y}`);
      }
    }
    return parts.join("");
  };
  // an outline that would cover a quarter of a small picture, however many pixels it has: a region of many specks
  const finest = 5;
  const fine = (region, high, wide) => {
    let edges = 0;
    for (let y = 0; y < high; y += 1) {
      for (let x = 0; x < wide; x += 1) {
        if (!region[y * wide + x]) continue;
        edges += !(y && region[(y - 1) * wide + x]) + !(y < high - 1 && region[(y + 1) * wide + x]);
        edges += !(x && region[y * wide + x - 1]) + !(x < wide - 1 && region[y * wide + x + 1]);
      }
    }
    return edges > finest * (high + wide);
  };
  const filled = (region, high, wide, inside) => {
    const parts = [], wanted = (y, x) => Boolean(region[y * wide + x]) === inside;
    for (let y = 0; y < high; y += 1) {
      for (let x = 0; x < wide; x += 1) {
        if (!wanted(y, x)) continue;
        const from = x;
        while (x < wide && wanted(y, x)) x += 1;
        parts.push(`M${from} ${y}H${x}V${y + 1}H${from}Z`);
      }
    }
    return parts.join("");
  };
  const framed = (row, kind) => {
    const entry = pictures.get(row), [high, wide] = entry.size;
    const frame = node(kind, "frame"), image = node("img", entry.kind === "png" ? "small" : "");
    image.src = `data:image/${entry.kind};base64,${entry.image}`;
    image.alt = `${data.ids[row]}: ${named(data.label[row])}, predicted ${named(data.prediction[row])}`;
    const svg = svgNode("svg", { viewBox: `0 0 ${wide} ${high}`, preserveAspectRatio: "none" });
    const region = { marked: bits(entry.marked, high * wide), shown: bits(entry.shown, high * wide) };
    const path = (name, d) => svgNode("path", { class: name, d });
    svg.append(path("beyond of-shown", filled(region.shown, high, wide, false)));
    // tints lie below all lines, and lines of marks above those of maps
    const tints = [], halos = [], lines = [];
    for (const name of ["shown", "marked"]) {
      if (fine(region[name], high, wide)) {
        tints.push(path(`${name} fine`, filled(region[name], high, wide, true)));
        for (const word of document.querySelectorAll(".key .tinted")) word.hidden = false;
        continue;
      }
      const d = outline(region[name], high, wide);
      halos.push(path(`halo of-${name}`, d));
      lines.push(path(name, d));
    }
    svg.append(...tints, ...halos, ...lines);
    frame.append(image, svg);
    return frame;
  };

  // --- one picture in large, with both outlines and all scores ---
  const dialog = byId("large");
  let inOrder = [], opened = 0;
  const enlarge = (row) => {
    opened = inOrder.indexOf(row);
    const figure = node("figure", `photo ${["wrong", "right"][data.right[row]] ?? ""}`), list = node("dl");
    figure.append(framed(row, "div"));
    const verdict = ["wrong", "right"][data.right[row]] ?? "not known whether it is right";
    const cases = data.cases.filter((_, place) => data.members[row] & (1 << place)).map((entry) => entry.name);
    const facts = [
      ["label", named(data.label[row])],
      ["prediction", `${named(data.prediction[row])} (${verdict})`],
      ["confidence", data.confidence[row] === null ? "–" : data.confidence[row].toFixed(2)],
      ...metrics.map((name) => [name, data.scores[name][row] === null ? "–" : data.scores[name][row].toFixed(2)]),
      ...(data.cases.length ? [["cases", cases.join(", ") || "none"]] : []),
    ];
    for (const [name, value] of facts) list.append(node("dt", "", name), node("dd", "", value));
    byId("large-title").textContent = data.ids[row];
    byId("large-pictures").replaceChildren(figure, list);
    byId("large-before").disabled = opened <= 0;
    byId("large-after").disabled = opened >= inOrder.length - 1;
    if (!dialog.open) dialog.showModal();
  };
  const turn = (by) => { const row = inOrder[opened + by]; if (row !== undefined) enlarge(row); };
  byId("large-before").addEventListener("click", () => turn(-1));
  byId("large-after").addEventListener("click", () => turn(1));
  dialog.addEventListener("keydown", (event) => {
    if (event.key === "ArrowLeft") turn(-1);
    if (event.key === "ArrowRight") turn(1);
  });
  dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });

  const tile = (row) => {
    const figure = node("figure", `photo ${["wrong", "right"][data.right[row]] ?? ""}`);
    const frame = framed(row, "button");
    frame.type = "button";
    frame.title = "show it in large";
    frame.addEventListener("click", () => enlarge(row));
    const caption = node("figcaption");
    const known = data.label[row] >= 0, right = data.right[row];
    caption.append(node("span", "truth", known ? named(data.label[row]) : "right answer not known"));
    const said = right === 1 ? " ✓" : ` ${right === 0 ? "✗ " : "→ "}${named(data.prediction[row])}`;
    caption.append(node("span", right === 0 ? "missed" : right === 1 ? "passed" : "", said));
    const scores = node("span", "scores");
    for (const name of metrics) {
      const value = data.scores[name][row], item = node("span", "", `${data.short[name]} ${value === null ? "–" : value.toFixed(2)}`);
      item.title = name;
      scores.append(item);
    }
    const id = node("span", "id", data.ids[row]);
    id.title = data.ids[row];
    caption.append(scores, id);
    figure.append(frame, caption);
    return figure;
  };

  // --- confusion matrix ---
  const worst = (() => {
    const found = new Map();
    const count = (label, weight) => found.set(label, (found.get(label) ?? 0) + weight);
    for (let row = 0; row < total; row += 1) {
      if (data.label[row] < 0) continue;
      count(data.label[row], 1);
      if (data.right[row] === 0) { count(data.label[row], 1e6); count(data.prediction[row], 1e6); }
    }
    return [...found].sort((a, b) => b[1] - a[1] || a[0] - b[0]).slice(0, 10).map(([label]) => label).sort((a, b) => a - b);
  })();
  const randomly = (seed) => () => { // mulberry32: the same page shows the same intervals
    seed = (seed + 0x6D2B79F5) | 0;
    let mixed = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
  };
  const spread = (values) => { // 95 % of bootstrap means, widened as a bootstrap of few numbers is too narrow
    const count = values.length, times = Math.max(200, Math.min(1000, Math.round(2e6 / count)));
    if (count < 2) return null;
    const mean = values.reduce((sum, value) => sum + value, 0) / count, next = randomly(count), found = [];
    for (let draw = 0; draw < times; draw += 1) {
      let sum = 0;
      for (let place = 0; place < count; place += 1) sum += values[Math.floor(next() * count)];
      found.push(mean + (sum / count - mean) * Math.sqrt(count / (count - 1)));
    }
    found.sort((a, b) => a - b);
    return [0.025, 0.975].map((part) => Math.min(1, Math.max(0, found[Math.round(part * (times - 1))])));
  };
  const confusion = () => {
    const table = byId("confusion"), score = data.scores[byId("confusion-score").value];
    const cells = worst.map(() => worst.map(() => [0, []]));
    const place = new Map(worst.map((label, index) => [label, index]));
    for (let row = 0; row < total; row += 1) {
      const y = place.get(data.label[row]), x = place.get(data.prediction[row]);
      if (y === undefined || x === undefined) continue;
      const cell = cells[y][x];
      cell[0] += 1;
      if (score[row] !== null) cell[1].push(score[row]);
    }
    const head = node("tr");
    head.append(node("th", "axis", "label ↓  prediction →"), ...worst.map((label) => { const th = node("th", "", named(label)); th.title = named(label); return th; }));
    const thead = node("thead"), body = node("tbody");
    thead.append(head);
    worst.forEach((label, y) => {
      const line = node("tr"), name = node("th", "", named(label)), most = Math.max(1, ...cells[y].map((cell) => cell[0]));
      name.title = named(label);
      line.append(name);
      worst.forEach((guess, x) => {
        const [count, values] = cells[y][x], td = node("td");
        if (count) {
          const button = node("button", "", String(count));
          button.type = "button";
          const mean = values.reduce((sum, value) => sum + value, 0) / values.length, ends = spread(values);
          button.append(node("small", "", values.length ? mean.toFixed(2) : "–"));
          if (ends) button.append(node("small", "", `[${ends.map((end) => end.toFixed(2)).join(", ")}]`));
          button.style.background = `color-mix(in srgb, var(${x === y ? "--good" : "--bad"}) ${Math.round(10 + 30 * (count / most))}%, var(--card))`;
          button.addEventListener("click", () => {
            state = { ...blank(), label: String(label), prediction: String(guess) };
            visible = page;
            update();
            byId("explorer").scrollIntoView();
          });
          td.append(button);
        }
        line.append(td);
      });
      body.append(line);
    });
    table.replaceChildren(thead, body);
  };

  // --- menus ---
  const options = (select, entries) => {
    select.replaceChildren(...entries.map(([value, text]) => { const option = node("option", "", text); option.value = value; return option; }));
  };
  const tally = (column) => {
    const found = new Map();
    for (const label of column) found.set(label, (found.get(label) ?? 0) + 1);
    return [...found].filter(([label]) => label >= 0).sort((a, b) => named(a[0]).localeCompare(named(b[0])));
  };
  const menu = (column) => tally(column).map(([label, count]) => [String(label), `${named(label)} (${count})`]);
  options(byId("case"), [["", "any"], ...data.cases.map((entry, place) => [String(place), entry.name])]);
  options(byId("label"), [["", "any"], ...menu(data.label)]);
  options(byId("prediction"), [["", "any"], ...(data.right.some((right) => right !== null) ? [["right", "right ones"], ["wrong", "wrong ones"]] : []), ...menu(data.prediction)]);
  options(byId("sort"), [["", "as they come"], ...[...metrics, "confidence"].flatMap((name) => [[`${name} up`, `${name}, lowest first`], [`${name} down`, `${name}, highest first`]])]);
  options(byId("confusion-score"), metrics.map((name) => [name, name]));
  for (const id of ["case", "label", "prediction", "sort"]) byId(id).addEventListener("change", (event) => { state[id] = event.target.value; visible = page; update(); });
  byId("confusion-score").addEventListener("change", confusion);
  byId("reset").addEventListener("click", (event) => { event.preventDefault(); state = blank(); visible = page; update(); });
  byId("filters").addEventListener("submit", (event) => event.preventDefault());
  byId("more").addEventListener("click", () => { visible += page; update(); });
  const drawers = [...document.querySelectorAll("[data-draw]")];
  for (const box of drawers) box.addEventListener("change", () => {
    const name = box.dataset.draw;
    for (const other of drawers) if (other.dataset.draw === name) other.checked = box.checked;
    for (const id of ["grid", "large"]) byId(id).classList.toggle(`no-${name}`, !box.checked);
  });
  for (const button of document.querySelectorAll(".case")) {
    button.addEventListener("click", () => {
      state = { ...blank(), case: state.case === button.dataset.case ? "" : button.dataset.case };
      visible = page;
      update();
      byId("explorer").scrollIntoView();
    });
  }

  const update = () => {
    for (const id of ["case", "label", "prediction", "sort"]) byId(id).value = state[id];
    const kept = sorted(rows()), shown = kept.filter((row) => pictures.has(row)), first = shown.slice(0, visible);
    inOrder = first;
    byId("grid").replaceChildren(...first.map(tile));
    byId("status").textContent = `${kept.length} of ${total} images kept; ${first.length} of ${shown.length} pictures shown.`;
    byId("more").hidden = first.length >= shown.length;
    for (const draw of histograms) draw();
    for (const button of document.querySelectorAll(".case")) button.setAttribute("aria-pressed", String(button.dataset.case === state.case));
    remember();
  };
  window.addEventListener("hashchange", () => { recall(); update(); });
  byId("explorer").hidden = false;
  if (!worst.length) byId("confusion-part").hidden = true; else confusion();
  recall();
  update();
})();
