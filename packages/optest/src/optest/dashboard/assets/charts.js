// Histograms and the trend, as SVG.
"use strict";

(() => {
  const { h } = optest;
  const NS = "http://www.w3.org/2000/svg";

  function svg(tag, attributes, ...children) {
    const element = document.createElementNS(NS, tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.append(...children);
    return element;
  }

  // A label begins under its bar; the last one needs this much to the right of it.
  const LABEL = 60;

  const titled = (text) => { const title = svg("title", {}); title.textContent = text; return title; };

  const LABELS = {
    ulp: (power) => (power < 0 ? "0" : power === 99 ? "∞" : power < 11 ? `≤${2 ** power}` : `≤2^${power}`),
    time: (power) => {
      const us = 10 ** (power / 3);
      return power < 0 ? "0" : us < 999 ? `≤${Math.round(us)} µs` : us < 999e3 ? `≤${Math.round(us / 1e3)} ms` : `≤${Math.round(us / 1e6)} s`;
    },
  };

  /** Bars of one or two series of [power, count], beside each other. */
  function histogram(title, series, unit) {
    const label = LABELS[unit];
    const powers = [...new Set(series.flatMap((one) => one.bins.map(([power]) => power)))].sort((x, y) => x - y);
    const totals = series.map((one) => one.bins.reduce((sum, [, count]) => sum + count, 0));
    const shares = series.map((one, i) => new Map(one.bins.map(([power, count]) => [power, count / totals[i]])));
    const most = Math.max(...shares.flatMap((one) => [...one.values()]), 1e-9);
    const width = 320, height = 110, base = 88, step = width / Math.max(powers.length, 1);
    const chart = svg("svg", { viewBox: `0 0 ${width + LABEL} ${height}`, role: "img" });
    chart.append(titled(`${title}: ${series.map((one, i) => `${one.name}, ${totals[i]} cases`).join("; ")}`));
    const every = Math.ceil(powers.length / 7);
    powers.forEach((power, place) => {
      series.forEach((one, i) => {
        const share = shares[i].get(power) || 0;
        const size = share ? Math.max(1, (share / most) * 78) : 0;
        const bar = svg("rect", {
          x: place * step + 1 + (i * (step - 2)) / series.length, width: Math.max(1, (step - 3) / series.length),
          y: base - size, height: size, class: one.kind,
        });
        bar.append(titled(`${one.name}, ${label(power)}: ${(100 * share).toFixed(1)} %`));
        chart.append(bar);
      });
      if (place % every === 0) {
        const text = svg("text", { x: place * step + 2, y: base + 13 });
        text.textContent = label(power);
        chart.append(text);
      }
    });
    chart.append(svg("line", { x1: 0, x2: width, y1: base, y2: base, class: "axis" }));
    return h("figure", {}, h("figcaption", {}, `${title} `, ...series.map((one) => key(one.kind, one.name))), chart);
  }

  function key(kind, text) {
    return h("span", {}, h("span", { class: `key ${kind}` }), ` ${text}  `);
  }

  /** The share that passes, rounded down: 99.97 % is not 100 %. */
  function share(one) {
    const total = one.passed + one.failed + one.other;
    return total ? `${Math.floor((1000 * one.passed) / total) / 10} %` : "";
  }

  /** Runs as stacked bars, oldest first, and as a table. */
  function trend(points) {
    const width = 900, base = 230, step = Math.min(60, width / Math.max(points.length, 1));
    const most = Math.max(1, ...points.map((one) => one.passed + one.failed + one.other));
    const chart = svg("svg", { viewBox: `0 0 ${width + LABEL} 260`, role: "img" });
    chart.append(titled("Cases of each run, by how they ended"));
    points.forEach((one, place) => {
      let top = base;
      for (const kind of ["passed", "other", "failed"]) {
        if (!one[kind]) continue;
        const size = Math.max(1.5, (one[kind] / most) * 210);
        top -= size;
        const bar = svg("rect", { x: place * step + 2, width: Math.max(2, step - 4), y: top, height: size, class: kind });
        bar.append(titled(`${one.run} (${one.backend}): ${one[kind]} ${kind}`));
        chart.append(bar);
      }
      if (place % Math.ceil(points.length / 12) === 0) {
        for (const [y, label] of [[base + 14, one.started.slice(0, 10)], [Math.max(10, top - 4), share(one)]]) {
          const text = svg("text", { x: place * step + 2, y });
          text.textContent = label;
          chart.append(text);
        }
      }
    });
    chart.append(svg("line", { x1: 0, x2: width, y1: base, y2: base, class: "axis" }));
    const names = ["run", "started", "backend", "passed", "failed", "other", "share", "unfinished"];
    const head = h("thead", {}, h("tr", {}, ...names.map((name) => h("th", {}, name))));
    const lines = [...points].reverse().map((one) =>
      h("tr", {}, ...names.map((name) => h("td", {}, String(name === "share" ? share(one) : one[name])))));
    const keys = h("p", {}, key("passed", "passed"), key("failed", "failed"), key("other", "other"));
    return h("div", {}, h("figure", {}, chart, keys), h("table", { class: "list" }, head, h("tbody", {}, ...lines)));
  }

  optest.charts = { histogram, trend, key };
})();
