"use strict";
(() => {
  const { node } = charts;
  const data = JSON.parse(document.getElementById("data").textContent);
  charts.start(data.charts);
  const root = document.getElementById("viewer");
  if (!root) return;
  const byId = (id) => document.getElementById(id);
  const sheets = data.sheets, references = new Set(["oracle", "control"]);
  const tasks = [...new Set(sheets.map((sheet) => sheet.task))];
  const title = (sheet) => `${sheet.network}, seed ${sheet.seed}`;
  const of = (task) => sheets.filter((sheet) => sheet.task === task);
  const blank = () => ({ task: tasks.includes(data.first) ? data.first : tasks[0], net: 0, beside: "", bucket: "", sort: "", all: "", methods: null });
  let state = blank();

  // --- the view stands behind the # of the address, so that it can be sent to somebody ---
  const mark = "#gallery?";
  const remember = () => {
    const words = new URLSearchParams({ task: state.task });
    if (opened) for (const [name, value] of Object.entries(opened.words())) words.set(name, value);
    for (const key of ["net", "beside", "bucket", "sort", "all"]) if (state[key] !== "" && state[key] !== 0) words.set(key, state[key]);
    if (state.methods) for (const name of state.methods.size ? state.methods : [""]) words.append("method", name);
    try { history.replaceState(null, "", mark + words); } catch { /* a page without an address */ }
  };
  const recall = () => {
    if (!location.hash.startsWith(mark)) return null;
    const words = new URLSearchParams(location.hash.slice(mark.length));
    state = blank();
    if (tasks.includes(words.get("task"))) state.task = words.get("task");
    const count = of(state.task).length, net = Number(words.get("net") ?? 0), beside = words.get("beside") ?? "";
    state.net = Number.isInteger(net) && net >= 0 && net < count ? net : 0;
    state.beside = /^\d+$/.test(beside) && Number(beside) < count && Number(beside) !== state.net ? String(Number(beside)) : "";
    state.bucket = current().scenes.some((scene) => scene.key === words.get("bucket")) ? words.get("bucket") : "";
    state.sort = ["best", "worst", "disagreement"].includes(words.get("sort")) ? words.get("sort") : "";
    state.all = words.get("all") === "1" ? "1" : "";
    const methods = words.getAll("method").filter((name) => current().methods.includes(name));
    state.methods = words.has("method") ? new Set(methods) : null;
    return words;
  };
  const current = () => of(state.task)[state.net];
  const chosen = (sheet) => sheet.methods.map((name, place) => place).filter((place) => !state.methods || state.methods.has(sheet.methods[place]));

  // --- pictures are cut from sheets that are loaded when they are needed ---
  const loaded = new Map();
  const picture = (source) => {
    if (!loaded.has(source)) {
      loaded.set(source, new Promise((done, fail) => {
        const image = new Image();
        image.addEventListener("load", () => done(image));
        image.addEventListener("error", () => { loaded.delete(source); fail(new Error(`${source.slice(0, 40)} cannot be read`)); });
        image.src = source;
      }));
    }
    return loaded.get(source);
  };
  const cut = (source, row, column, rows, columns, words, draw) => {
    const canvas = node("canvas");
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", words);
    picture(source).then((image) => {
      const wide = image.naturalWidth / columns, high = image.naturalHeight / rows;
      if (draw) { draw(canvas, image, [column * wide, row * high, wide, high]); return; }
      Object.assign(canvas, { width: wide, height: high });
      canvas.getContext("2d").drawImage(image, column * wide, row * high, wide, high, 0, 0, wide, high);
    }).catch(() => canvas.replaceWith(node("p", "note", "The file with this picture is not beside the page.")));
    return canvas;
  };
  // --- maps of the Earth: cells where they lie, land left out, the coast as the cells have it ---
  const tick = (span, most) => [0.5, 1, 2, 5, 10, 15, 30, 45, 60, 90].find((step) => span / step <= most) ?? 90;
  const within = (low, high, step) => { const found = []; for (let at = Math.ceil(low / step) * step; at <= high; at += step) found.push(at); return found; };
  const north = (at) => `${Math.abs(at)}°${at < 0 ? "S" : at > 0 ? "N" : ""}`;
  const east = (at) => { const turned = ((at % 360) + 540) % 360 - 180; return Math.abs(turned) === 180 ? "180°" : `${Math.abs(turned)}°${turned < 0 ? "W" : turned > 0 ? "E" : ""}`; };
  const earths = data.globes.map((globe) => {
    const down = globe.latitudes, across = globe.longitudes, [top, left] = [down[0], across[0]];
    const high = top - down.at(-1), wide = across.at(-1) - left, cell = (row, column) => globe.ocean[row]?.[column] === "1";
    const y = (at) => (top - at) / high, x = (at) => (at - left) / wide;
    const coast = [], round = wide > 359;
    for (let row = 0; row < down.length - 1; row += 1) {
      for (let column = 0; column < across.length - 1; column += 1) {
        const here = cell(row, column), next = round && column === across.length - 2 ? 0 : column + 1;
        if (row < down.length - 2 && here !== cell(row + 1, column)) coast.push([x(across[column]), y(down[row + 1]), x(across[column + 1]), y(down[row + 1])]);
        if (next < across.length - 1 && here !== cell(row, next)) coast.push([x(across[column + 1]), y(down[row]), x(across[column + 1]), y(down[row + 1])]);
      }
    }
    const [steps, turns] = [tick(high, 6), tick(wide, 4)];
    const parallels = globe.degrees ? within(down.at(-1), top, steps) : [], meridians = globe.degrees ? within(left, across.at(-1), turns) : [];
    return { x: across.map(x), y: down.map(y), coast, ratio: Math.min(2, Math.max(0.25, high / wide)), parallels: parallels.map((at) => [y(at), north(at)]), meridians: meridians.map((at) => [x(at), east(at)]) };
  });
  const even = (places) => { const step = 1 / (places.length - 1); return places.every((at, i) => Math.abs(at - i * step) < step / 50); };
  const stretch = (image, from, places, to, down) => {
    // one axis at a time; an axis of equal cells is one piece
    const all = down ? [from[1], from[3], to.height] : [from[0], from[2], to.width], cells = places.length - 1, context = to.getContext("2d");
    context.imageSmoothingEnabled = false;
    const pieces = even(places) ? [[0, cells, 0, all[2]]] : places.slice(0, -1).map((at, i) => [i, 1, Math.round(at * all[2]), Math.round(places[i + 1] * all[2]) - Math.round(at * all[2])]);
    for (const [first, count, start, length] of pieces) {
      const source = all[0] + first * all[1] / cells, size = count * all[1] / cells;
      if (down) context.drawImage(image, from[0], source, from[2], size, 0, start, to.width, length);
      else context.drawImage(image, source, from[1], size, from[3], start, 0, length, to.height);
    }
  };
  const earth = (globe, canvas, image, from, wide) => {
    const between = node("canvas"), high = Math.round(wide * globe.ratio), context = canvas.getContext("2d");
    Object.assign(between, { width: wide, height: from[3] });
    Object.assign(canvas, { width: wide, height: high });
    stretch(image, from, globe.x, between, false);
    stretch(between, [0, 0, wide, from[3]], globe.y, canvas, true);
    const line = (x1, y1, x2, y2) => { context.moveTo(x1 * wide, y1 * high); context.lineTo(x2 * wide, y2 * high); };
    Object.assign(context, { lineWidth: wide / 500, strokeStyle: "rgb(110 120 130 / 0.5)" });
    context.beginPath();
    for (const [y] of globe.parallels) line(0, y, 1, y);
    for (const [x] of globe.meridians) line(x, 0, x, 1);
    context.stroke();
    // a dark line with a light rim, so that it can be seen on light cells and on dark land
    for (const [width, strokeStyle] of [[wide / 120, "rgb(236 239 242)"], [wide / 340, "rgb(70 76 84)"]]) {
      Object.assign(context, { lineWidth: width, lineCap: "square", strokeStyle });
      context.beginPath();
      for (const piece of globe.coast) line(...piece);
      context.stroke();
    }
  };
  const degrees = (globe, made) => {
    for (const [axis, side, ticks] of [["parallel", "top", globe.parallels], ["meridian", "left", globe.meridians]]) {
      for (const [at, text] of ticks) {
        const label = node("span", axis, text);
        label.style[side] = `${100 * at}%`;
        label.setAttribute("aria-hidden", "true");
        made.append(label);
      }
    }
  };
  // one picture of a sheet; maps of the Earth have degrees along their sides
  const piece = (sheet, source, row, column, columns, words, wide) => {
    const canvas = cut(source, row, column, sheet.scenes.length, columns, words, sheet.globe === null ? null : (made, image, from) => earth(earths[sheet.globe], made, image, from, wide));
    if (sheet.globe === null) return canvas;
    const globe = earths[sheet.globe], made = node("span", globe.parallels.length ? "globe degrees" : "globe"), frame = node("span", "earth");
    canvas.style.aspectRatio = `${1 / globe.ratio}`;
    frame.append(canvas);
    degrees(globe, frame);
    made.append(frame);
    return made;
  };
  const [SMALL, LARGE] = [420, 1260];
  const word = (sheet, row, column) => {
    const value = sheet.scores[row][column];
    return value !== null ? value.toFixed(2) : sheet.globe !== null ? "no score" : sheet.scenes[row].focus ? "wrong" : "no focus";
  };
  const front = (sheet, row, column, wide = SMALL) => piece(sheet, sheet.inputs, row, column, sheet.fronts.length, `${sheet.fronts[column]}: ${sheet.scenes[row].scene}`, wide);
  const map = (sheet, row, column, wide = SMALL) => piece(sheet, sheet.maps, row, column, sheet.methods.length, `map of ${sheet.methods[column]}, ${word(sheet, row, column)}`, wide);

  // --- one map in large; arrows lead to the next method and the next scene ---
  const dialog = byId("large");
  let opened = null;
  const enlarge = (sheet, row, column) => {
    const rows = order(current()).map((place) => (sheet === current() ? place : sheet.scenes.findIndex((entry) => entry.sample === current().scenes[place].sample))).filter((place) => place >= 0);
    const columns = chosen(sheet), at = [rows.indexOf(row), columns.indexOf(column)];
    if (at.includes(-1)) return;
    const near = (down, across) => [rows[at[0] + down], columns[at[1] + across]];
    opened = { sheet, row, column, near, words: () => ({ at: sheet.scenes[row].key, map: sheet.methods[column], ...(sheet === current() ? {} : { side: 1 }) }) };
    const figures = sheet.fronts.map((text, place) => { const made = node("figure"); made.append(front(sheet, row, place, LARGE), node("figcaption", "", sheet.globe === null ? sheet.scenes[row].scene : text)); return made; });
    const shown = node("figure");
    shown.append(map(sheet, row, column, LARGE), node("figcaption", "", `${sheet.methods[column]}: ${word(sheet, row, column)}`));
    const name = sheet.globe === null ? `bucket ${sheet.scenes[row].group}` : sheet.scenes[row].scene;
    byId("large-title").textContent = `${sheet.methods[column]} on ${sheet.task}, ${name}; ${title(sheet)}`;
    byId("large-pictures").replaceChildren(...figures, shown);
    for (const button of dialog.querySelectorAll("[data-turn]")) button.disabled = near(...button.dataset.turn.split(" ").map(Number)).includes(undefined);
    for (const span of dialog.querySelectorAll(".turn-word")) span.textContent = sheet.globe === null ? "scene" : "sample";
    if (!dialog.open) dialog.showModal();
    remember();
  };
  const turn = (down, across) => {
    const [row, column] = opened.near(down, across);
    if (row !== undefined && column !== undefined) enlarge(opened.sheet, row, column);
  };
  const turns = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
  for (const button of dialog.querySelectorAll("[data-turn]")) button.addEventListener("click", () => turn(...button.dataset.turn.split(" ").map(Number)));
  dialog.addEventListener("keydown", (event) => {
    if (!opened || !(event.key in turns) || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    turn(...turns[event.key]);
  });
  dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
  dialog.addEventListener("close", () => {
    const last = opened;
    opened = null;
    remember();
    if (last) [...root.querySelectorAll("button.map")].find((button) => button.place.every((value, i) => value === [last.sheet, last.row, last.column][i]))?.focus();
  });

  // --- scenes ---
  const judged = (sheet, row) => chosen(sheet).filter((place) => !references.has(sheet.kinds[place])).map((place) => sheet.scores[row][place]).filter((value) => value !== null);
  const figure = (sheet, row) => {
    const values = judged(sheet, row);
    if (!values.length) return null;
    return state.sort === "disagreement" ? Math.max(...values) - Math.min(...values) : values.reduce((a, b) => a + b, 0) / values.length;
  };
  const order = (sheet) => {
    const rows = sheet.scenes.map((scene, row) => row).filter((row) => state.bucket === "" || sheet.scenes[row].key === state.bucket);
    if (!state.sort) return rows.sort((a, b) => sheet.scenes[b].focus - sheet.scenes[a].focus || a - b);
    const sign = data.higher === (state.sort === "worst") && state.sort !== "disagreement" ? 1 : -1;
    const keys = new Map(rows.map((row) => [row, figure(sheet, row)]));
    return rows.sort((a, b) => {
      if (keys.get(a) === null || keys.get(b) === null) return (keys.get(a) === null) - (keys.get(b) === null);
      return sign * (keys.get(a) - keys.get(b)) || a - b;
    });
  };
  const tile = (sheet, row, column) => {
    const made = node("figure", `tile ${sheet.kinds[column]}`), button = node("button", "map"), caption = node("figcaption");
    button.type = "button";
    button.title = "enlarge";
    button.place = [sheet, row, column];
    button.append(map(sheet, row, column));
    button.addEventListener("click", () => enlarge(sheet, row, column));
    caption.append(node("strong", "", word(sheet, row, column)), node("br"), sheet.methods[column]);
    made.append(button, caption);
    return made;
  };
  const scene = (sheet, row, other) => {
    const made = node("section", "scene-block"), head = node("h3", "", sheet.scenes[row].scene);
    const value = state.sort ? figure(sheet, row) : null;
    const words = { best: "mean of the chosen methods", worst: "mean of the chosen methods", disagreement: "from the lowest to the highest" };
    const said = [sheet.globe === null ? `bucket ${sheet.scenes[row].group}` : "", value === null ? "" : `${words[state.sort]}: ${value.toFixed(2)}`].filter((text) => text);
    if (said.length) head.append(node("span", "note", ` ${said.join("; ")}`));
    made.append(head);
    for (const [place, one] of [sheet, other].entries()) {
      if (!one) continue;
      const line = node("div", "scene"), at = one.scenes.findIndex((entry) => entry.sample === sheet.scenes[row].sample);
      if (other) made.append(node("p", "note", title(one)));
      const fronts = sheet.fronts.map((text, column) => {
        const first = node("figure", "tile truth");
        if (place === 0) first.append(front(sheet, row, column), node("figcaption", "", text));
        return first;
      });
      line.append(...fronts, ...(at < 0 ? [] : chosen(one).map((column) => tile(one, at, column))));
      made.append(line);
    }
    return made;
  };

  // --- a page with all of them is long: the rest is shown when somebody asks for it ---
  const FIRST = 4;
  const rest = (shown, count, noun) => {
    const made = node("p", "rest", `${shown} of ${count} ${noun} are shown. `), button = node("button", "", `Show all ${count}`);
    button.type = "button";
    button.addEventListener("click", () => { state.all = "1"; update(); root.children[shown]?.querySelector("button")?.focus({ preventScroll: true }); });
    made.append(button);
    return made;
  };

  // --- controls ---
  const options = (select, entries) => select.replaceChildren(...entries.map(([value, text]) => { const option = node("option", "", text); option.value = value; return option; }));
  const picker = () => {
    const sheet = current();
    byId("pick-list").replaceChildren(...sheet.methods.map((name) => {
      const label = node("label"), box = node("input");
      box.type = "checkbox";
      box.checked = !state.methods || state.methods.has(name);
      box.addEventListener("change", () => {
        const kept = state.methods ?? new Set(sheet.methods);
        if (box.checked) kept.add(name); else kept.delete(name);
        state.methods = kept.size === sheet.methods.length ? null : kept;
        update();
      });
      label.append(box, " ", name);
      return label;
    }));
  };
  const some = { all: () => null, none: () => new Set(), ranked: (sheet) => new Set([...sheet.methods.filter((name, place) => sheet.kinds[place] === "method").slice(0, 5), "oracle"]) };
  for (const button of document.querySelectorAll("[data-pick]")) button.addEventListener("click", () => { state.methods = some[button.dataset.pick](current()); picker(); update(); });
  const menus = () => {
    const mine = of(state.task), sheet = current();
    options(byId("g-task"), tasks.map((name) => [name, name]));
    options(byId("g-net"), mine.map((entry, place) => [String(place), title(entry)]));
    options(byId("g-beside"), [["", "none"], ...mine.map((entry, place) => [String(place), title(entry)]).filter(([place]) => place !== String(state.net))]);
    byId("g-beside").closest("label").hidden = mine.length < 2;
    byId("g-net").closest("label").hidden = mine.length < 2;
    options(byId("g-bucket"), [["", "all"], ...sheet.scenes.map((entry) => [entry.key, sheet.globe === null ? `${entry.group}: ${entry.scene}` : entry.scene])]);
    byId("g-bucket-word").textContent = sheet.globe === null ? "Bucket" : "Sample";
    byId("g-plain").textContent = sheet.globe === null ? "with a focus first" : "as numbered";
    picker();
  };
  const update = (kept = true) => {
    for (const [id, key] of [["g-task", "task"], ["g-net", "net"], ["g-beside", "beside"], ["g-bucket", "bucket"], ["g-sort", "sort"]]) byId(id).value = String(state[key]);
    const sheet = current(), count = chosen(sheet).length, other = state.beside === "" ? null : of(state.task)[Number(state.beside)];
    byId("pick-summary").textContent = `Methods (${count} of ${sheet.methods.length})`;
    byId("g-reasoning").textContent = sheet.reasoning;
    byId("g-absent").textContent = sheet.absent.length ? ` No maps, because they failed: ${sheet.absent.join(", ")}.` : "";
    root.classList.toggle("few", count <= 4);
    root.classList.toggle("charts", sheet.globe !== null);
    const rows = order(sheet), shown = state.all ? rows : rows.slice(0, FIRST);
    root.replaceChildren(...(count ? shown.map((row) => scene(sheet, row, other)) : [node("p", "", "Choose at least one method.")]));
    if (count && shown.length < rows.length) root.append(rest(shown.length, rows.length, sheet.globe === null ? "buckets" : "samples"));
    if (kept) remember();
  };
  const change = (key, then = () => {}) => (event) => { state[key] = event.target.value; then(); update(); };
  byId("g-task").addEventListener("change", change("task", () => { Object.assign(state, { net: 0, beside: "", bucket: "", methods: state.methods && new Set([...state.methods].filter((name) => of(state.task)[0].methods.includes(name))) }); menus(); }));
  byId("g-net").addEventListener("change", change("net", () => { state.net = Number(state.net); if (state.beside === String(state.net)) state.beside = ""; menus(); }));
  byId("g-beside").addEventListener("change", change("beside"));
  byId("g-bucket").addEventListener("change", change("bucket"));
  byId("g-sort").addEventListener("change", change("sort"));
  byId("g-form").addEventListener("submit", (event) => event.preventDefault());
  byId("g-form").hidden = false;
  const show = () => {
    const linked = recall();
    menus();
    update(false);
    if (!linked) return;
    byId("gallery").scrollIntoView();
    if (!linked.has("map")) { dialog.close(); return; }
    const sheet = linked.has("side") && state.beside !== "" ? of(state.task)[Number(state.beside)] : current();
    enlarge(sheet, sheet.scenes.findIndex((entry) => entry.key === linked.get("at")), sheet.methods.indexOf(linked.get("map")));
  };
  addEventListener("hashchange", () => { if (location.hash.startsWith(mark)) show(); });
  show();
})();
