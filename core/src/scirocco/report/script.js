"use strict";
(() => {
  const root = document.documentElement;
  const all = (selector, inside = document) => [...inside.querySelectorAll(selector)];

  // -- light and dark: the system decides until the reader does --------------------------------------------------
  const button = document.getElementById("theme");
  const system = window.matchMedia("(prefers-color-scheme: dark)");
  const kept = (value) => {
    try {  // a page in a frame or from a file may have no storage
      if (value) localStorage.setItem("scirocco-theme", value);
      return localStorage.getItem("scirocco-theme");
    } catch (error) {
      return null;
    }
  };
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
  const tell = () => { button.textContent = isDark() ? "Light colours" : "Dark colours"; };  // what a click does
  const before = kept();
  if (before === "dark" || before === "light") root.dataset.theme = before;
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    kept(root.dataset.theme);
    tell();
  });
  system.addEventListener("change", tell);
  tell();
  button.hidden = false;

  // -- a card that is opened shows the traces of its words -----------------------------------------------------------
  const open = (card, wanted) => {
    const press = card.querySelector(".pick");
    if (!press) return;
    press.setAttribute("aria-expanded", String(wanted));
    document.getElementById(press.getAttribute("aria-controls")).hidden = !wanted;
  };
  all(".card").forEach((card) => {
    const press = card.querySelector(".pick");
    open(card, false);
    if (press) press.addEventListener("click", () => open(card, press.getAttribute("aria-expanded") === "false"));
  });

  // -- links within the page: also in a notebook's frame, where the page has no address ---------------------------
  document.addEventListener("click", (event) => {
    const link = event.target.closest('a[href^="#"]');
    const target = link && document.getElementById(link.getAttribute("href").slice(1));
    if (!target) return;
    event.preventDefault();
    target.hidden = false;
    if (target.matches(".card")) open(target, true);
    target.scrollIntoView();
    target.focus({ preventScroll: true });
  });

  // -- tables: sort by a column, keep rows that hold a text ---------------------------------------------------------
  const words = new Intl.Collator(undefined, { numeric: true });
  const value = (row, column, numeric) => {
    const text = row.children[column].textContent.trim();
    const number = numeric ? parseFloat(text) : NaN;
    return Number.isNaN(number) ? text : number;
  };
  const compare = (a, b) => {
    if (typeof a === "string" && typeof b === "string") return words.compare(a, b);
    if (typeof a === typeof b) return a < b ? -1 : a > b ? 1 : 0;
    return typeof a === "number" ? -1 : 1;  // what is not known comes last
  };
  all("table.sortable").forEach((table) => {
    all("thead th", table).forEach((head, column) => {
      const press = head.querySelector("button");
      if (!press) return;
      press.addEventListener("click", () => {
        const down = head.getAttribute("aria-sort") === "ascending";
        all("thead th", table).forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        const rows = all("tbody tr", table).map((row) => [value(row, column, head.classList.contains("num")), row]);
        rows.sort((a, b) => {
          if (typeof a[0] !== typeof b[0]) return compare(a[0], b[0]);
          return (down ? -1 : 1) * compare(a[0], b[0]);
        });
        table.tBodies[0].append(...rows.map((pair) => pair[1]));
      });
    });
  });

  const said = (box, shown, of) => {
    const place = document.getElementById(box.dataset.status);
    if (place) place.textContent = `${shown} of ${of} shown`;
  };
  const keep = (box, items, text) => {
    const wanted = box.value.trim().toLowerCase();
    let shown = 0;
    items.forEach((item) => {
      item.hidden = !text(item).toLowerCase().includes(wanted);
      shown += !item.hidden;
    });
    said(box, shown, items.length);
    return wanted;
  };
  all("input[data-rows]").forEach((box) => {
    const rows = all("tbody tr", document.getElementById(box.dataset.rows));
    box.addEventListener("input", () => keep(box, rows, (row) => row.children[0].textContent));
    said(box, rows.length, rows.length);
  });

  // -- cards of topics and clusters ---------------------------------------------------------------------------------
  all("input[data-cards]").forEach((box) => {
    const deck = document.getElementById(box.dataset.cards);
    const cards = all(".card", deck);
    box.addEventListener("input", () => {
      const wanted = keep(box, cards, (card) => card.dataset.text);
      cards.forEach((card) => {
        all("tbody th", card).forEach((head) => {
          const text = head.textContent;
          const place = wanted ? text.toLowerCase().indexOf(wanted) : -1;
          if (place < 0) {
            head.textContent = text;
            return;
          }
          const found = document.createElement("mark");
          found.textContent = text.slice(place, place + wanted.length);
          head.replaceChildren(text.slice(0, place), found, text.slice(place + wanted.length));
        });
        all(`a.bubble[href="#${card.id}"]`).forEach((mark) => mark.classList.toggle("off", card.hidden));
      });
      rove(deck);
    });
    said(box, cards.length, cards.length);
  });
  all("select[data-cards]").forEach((choice) => {
    const deck = document.getElementById(choice.dataset.cards);
    choice.addEventListener("change", () => {
      const [name, way] = choice.value.split(" ");
      const order = (card) => parseFloat(card.dataset[name]);
      const cards = all(".card", deck).sort((a, b) => (way === "down" ? order(b) - order(a) : order(a) - order(b)));
      deck.append(...cards);
      rove(deck);
    });
  });

  // -- keys: one card of a deck is in the order of Tab, arrows go to its neighbours -----------------------------------
  const visible = (deck) => all(".card", deck).filter((card) => !card.hidden);
  const columns = (deck) => {
    const cards = visible(deck);
    return cards.filter((card) => card.offsetTop === cards[0].offsetTop).length;
  };
  const enter = (card) => {
    const press = card.querySelector(".pick");
    return press || card;
  };
  const rove = (deck, to) => {
    const cards = visible(deck);
    all(".card", deck).forEach((card) => { enter(card).tabIndex = -1; });
    const chosen = to || cards[0];
    if (chosen) enter(chosen).tabIndex = 0;
    if (to) enter(to).focus();
  };
  all(".cards").forEach((deck) => {
    rove(deck);
    deck.addEventListener("focusin", (event) => {
      const card = event.target.closest(".card");
      if (card) all(".card", deck).forEach((other) => { enter(other).tabIndex = other === card ? 0 : -1; });
    });
    deck.addEventListener("keydown", (event) => {
      const card = event.target.closest(".card");
      if (!card || event.altKey || event.ctrlKey || event.metaKey) return;
      const cards = visible(deck);
      const here = cards.indexOf(card);
      const ways = {
        ArrowRight: here + 1, ArrowLeft: here - 1, ArrowDown: here + columns(deck), ArrowUp: here - columns(deck),
        Home: 0, End: cards.length - 1,
      };
      if (event.key in ways) {
        event.preventDefault();
        const to = cards[ways[event.key]];
        if (to) rove(deck, to);
      } else if (event.key === "Enter" && event.target === card) {
        const press = card.querySelector(".pick");
        if (press) press.click();
      }
    });
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "/" || event.altKey || event.ctrlKey || event.metaKey) return;
    if (event.target.matches("input, select, textarea")) return;
    const box = document.querySelector("input[data-cards], input[data-rows]");
    if (box) {
      event.preventDefault();
      box.focus();
    }
  });
})();
