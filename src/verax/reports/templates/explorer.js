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
  const blank = () => ({ task: tasks.includes(data.first) ? data.first : tasks[0], net: 0, beside: "", bucket: "", sort: "", methods: null });
  let state = blank();

  // --- the view stands behind the # of the address, so that it can be sent to somebody ---
  const mark = "#gallery?";
  const remember = () => {
    const words = new URLSearchParams({ task: state.task });
    for (const key of ["net", "beside", "bucket", "sort"]) if (state[key] !== "" && state[key] !== 0) words.set(key, state[key]);
    if (state.methods) for (const name of state.methods.size ? state.methods : [""]) words.append("method", name);
    try { history.replaceState(null, "", mark + words); } catch { /* a page without an address */ }
  };
  const recall = () => {
    if (!location.hash.startsWith(mark)) return false;
    const words = new URLSearchParams(location.hash.slice(mark.length));
    state = blank();
    if (tasks.includes(words.get("task"))) state.task = words.get("task");
    const count = of(state.task).length, net = Number(words.get("net") ?? 0), beside = words.get("beside") ?? "";
    state.net = Number.isInteger(net) && net >= 0 && net < count ? net : 0;
    state.beside = /^\d+$/.test(beside) && Number(beside) < count ? beside : "";
    state.bucket = current().scenes.some((scene) => String(scene.group) === words.get("bucket")) ? words.get("bucket") : "";
    state.sort = ["best", "worst", "disagreement"].includes(words.get("sort")) ? words.get("sort") : "";
    const methods = words.getAll("method").filter((name) => current().methods.includes(name));
    state.methods = words.has("method") ? new Set(methods) : null;
    return true;
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
  const cut = (source, row, column, rows, columns, words) => {
    const canvas = node("canvas");
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", words);
    picture(source).then((image) => {
      const wide = image.naturalWidth / columns, high = image.naturalHeight / rows;
      Object.assign(canvas, { width: wide, height: high });
      canvas.getContext("2d").drawImage(image, column * wide, row * high, wide, high, 0, 0, wide, high);
    }).catch(() => canvas.replaceWith(node("p", "note", "The file with this picture is not beside the page.")));
    return canvas;
  };
  const word = (sheet, row, column) => {
    const value = sheet.scores[row][column];
    return value !== null ? value.toFixed(2) : sheet.scenes[row].focus ? "wrong" : "no focus";
  };
  const input = (sheet, row) => cut(sheet.inputs, row, 0, sheet.scenes.length, 1, `input with its truth: ${sheet.scenes[row].scene}`);
  const map = (sheet, row, column) => cut(sheet.maps, row, column, sheet.scenes.length, sheet.methods.length, `map of ${sheet.methods[column]}, ${word(sheet, row, column)}`);

  // --- one map in large ---
  const dialog = byId("large");
  const enlarge = (sheet, row, column) => {
    const left = node("figure"), right = node("figure");
    left.append(input(sheet, row), node("figcaption", "", sheet.scenes[row].scene));
    right.append(map(sheet, row, column), node("figcaption", "", `${sheet.methods[column]}: ${word(sheet, row, column)}`));
    byId("large-title").textContent = `${sheet.task}, bucket ${sheet.scenes[row].group}, sample ${sheet.scenes[row].sample}; ${title(sheet)}`;
    byId("large-pictures").replaceChildren(left, right);
    dialog.showModal();
  };
  dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });

  // --- scenes ---
  const judged = (sheet, row) => chosen(sheet).filter((place) => !references.has(sheet.kinds[place])).map((place) => sheet.scores[row][place]).filter((value) => value !== null);
  const figure = (sheet, row) => {
    const values = judged(sheet, row);
    if (!values.length) return null;
    return state.sort === "disagreement" ? Math.max(...values) - Math.min(...values) : values.reduce((a, b) => a + b, 0) / values.length;
  };
  const order = (sheet) => {
    const rows = sheet.scenes.map((scene, row) => row).filter((row) => state.bucket === "" || String(sheet.scenes[row].group) === state.bucket);
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
    head.append(node("span", "note", ` bucket ${sheet.scenes[row].group}${value === null ? "" : `; ${words[state.sort]}: ${value.toFixed(2)}`}`));
    made.append(head);
    for (const [place, one] of [sheet, other].entries()) {
      if (!one) continue;
      const line = node("div", "scene"), at = one.scenes.findIndex((entry) => entry.sample === sheet.scenes[row].sample);
      const first = node("figure", "tile truth");
      if (place === 0) first.append(input(sheet, row));
      first.append(node("figcaption", "", other ? title(one) : "input and truth"));
      line.append(first, ...(at < 0 ? [] : chosen(one).map((column) => tile(one, at, column))));
      made.append(line);
    }
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
    options(byId("g-bucket"), [["", "all"], ...sheet.scenes.map((entry) => [String(entry.group), `${entry.group}: ${entry.scene}`])]);
    picker();
  };
  const update = (kept = true) => {
    for (const [id, key] of [["g-task", "task"], ["g-net", "net"], ["g-beside", "beside"], ["g-bucket", "bucket"], ["g-sort", "sort"]]) byId(id).value = String(state[key]);
    const sheet = current(), count = chosen(sheet).length, other = state.beside === "" ? null : of(state.task)[Number(state.beside)];
    byId("pick-summary").textContent = `Methods (${count} of ${sheet.methods.length})`;
    byId("g-reasoning").textContent = sheet.reasoning;
    byId("g-absent").textContent = sheet.absent.length ? ` No maps, because they failed: ${sheet.absent.join(", ")}.` : "";
    root.classList.toggle("few", count <= 4);
    root.replaceChildren(...(count ? order(sheet).map((row) => scene(sheet, row, other)) : [node("p", "", "Choose at least one method.")]));
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
    if (linked) byId("gallery").scrollIntoView();
  };
  addEventListener("hashchange", () => { if (location.hash.startsWith(mark)) show(); });
  show();
})();
