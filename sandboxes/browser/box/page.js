// The driver's eyes in a page: what there is to see as a tree of roles and names, an element by its id, and whether the
// page is about to move on. Runs in a world of its own in every document; the page's scripts share its elements and can
// neither reach nor replace anything here. Roles, names and states are those of WAI-ARIA 1.2, HTML-AAM and accname 1.2,
// as far as pages use them.

globalThis.page ??= (() => {
  // A form's fields shadow its properties, such as `parentNode`, for whoever asks the form itself.
  const getter = (of, name) => { const got = Object.getOwnPropertyDescriptor(of, name).get; return node => got.call(node); };
  const typeOf = getter(Node.prototype, 'nodeType'), nameOf = getter(Node.prototype, 'nodeName');
  const parentOf = getter(Node.prototype, 'parentNode'), firstOf = getter(Node.prototype, 'firstChild');
  const nextOf = getter(Node.prototype, 'nextSibling'), shadowOf = getter(Element.prototype, 'shadowRoot');
  const slotOf = node => typeOf(node) < 4 ? node.assignedSlot : null;
  const attr = (e, name) => Element.prototype.getAttribute.call(e, name);
  const has = (e, name) => Element.prototype.hasAttribute.call(e, name);
  const closest = (e, css) => Element.prototype.closest.call(e, css);
  const rectOf = e => Element.prototype.getBoundingClientRect.call(e);
  const tagOf = e => nameOf(e).toUpperCase();
  const above = e => {
    const parent = parentOf(e);
    return !parent ? null : typeOf(parent) === 11 ? parent.host ?? null : typeOf(parent) === 1 ? parent : null;
  };
  const flat = text => text.replace(/[\u200b\u00ad]/g, '').replace(/\s+/g, ' ').trim();
  const listed = text => text.split(' ');
  let styles = new Map();
  const styleOf = e => {
    let found = styles.get(e);
    if (!found) styles.set(e, found = getComputedStyle(e));
    return found;
  };

  // -- what is visible

  const IGNORED = new Set(listed('STYLE SCRIPT NOSCRIPT TEMPLATE HEAD'));
  const hides = e => {
    for (let each = e; each; each = above(each))
      if (styleOf(each).display === 'none' || attr(each, 'aria-hidden')?.toLowerCase() === 'true') return true;
    return false;
  };
  const unseen = e => { // of no account for names and roles
    if (IGNORED.has(tagOf(e))) return true;
    const inside = tagOf(e) === 'OPTION' && closest(e, 'select');
    const drawable = tagOf(e) !== 'SLOT' && styleOf(e).display !== 'contents';
    return (!inside && drawable && styleOf(e).visibility !== 'visible') || hides(e);
  };
  const drawn = e => {
    if (styleOf(e).display === 'contents') return true;
    if (styleOf(e).visibility !== 'visible' || !e.checkVisibility()) return false;
    const { width, height } = rectOf(e);
    return width > 0 && height > 0;
  };
  const content = (e, which) => {
    const style = getComputedStyle(e, which), said = style.content;
    if (!said.startsWith('"') || style.display === 'none' || style.visibility === 'hidden') return '';
    const text = said.slice(1, said.indexOf('"', 1)).replace(/\\"/g, '"');
    return style.display === 'inline' ? text : ` ${text} `;
  };

  // -- roles

  const ROLES = {
    ARTICLE: 'article', ASIDE: 'complementary', BLOCKQUOTE: 'blockquote', BUTTON: 'button', CAPTION: 'caption',
    CODE: 'code', DATALIST: 'listbox', DD: 'definition', DEL: 'deletion', DETAILS: 'group', DFN: 'term', DIALOG: 'dialog',
    DT: 'term', EM: 'emphasis', FIELDSET: 'group', FIGURE: 'figure', H1: 'heading', H2: 'heading', H3: 'heading',
    H4: 'heading', H5: 'heading', H6: 'heading', HR: 'separator', HTML: 'document', IFRAME: 'iframe', FRAME: 'iframe',
    IMG: 'img', INS: 'insertion', LI: 'listitem', MAIN: 'main', MARK: 'mark', MENU: 'list', METER: 'meter',
    NAV: 'navigation', OL: 'list', OPTGROUP: 'group', OPTION: 'option', OUTPUT: 'status', P: 'paragraph',
    PROGRESS: 'progressbar', SEARCH: 'search', STRONG: 'strong', SUB: 'subscript', SUP: 'superscript', SVG: 'img',
    TABLE: 'table', TBODY: 'rowgroup', TD: 'cell', TEXTAREA: 'textbox', TFOOT: 'rowgroup', TH: 'columnheader',
    THEAD: 'rowgroup', TIME: 'time', TR: 'row', UL: 'list',
  };
  const INPUTS = {
    button: 'button', checkbox: 'checkbox', file: 'button', hidden: '', image: 'button', number: 'spinbutton',
    radio: 'radio', range: 'slider', reset: 'button', search: 'searchbox', submit: 'button',
  };
  const OTHERS = listed('alert alertdialog application banner combobox contentinfo directory feed form generic grid ' +
    'gridcell link log marquee math menu menubar menuitem menuitemcheckbox menuitemradio none note presentation ' +
    'radiogroup region rowheader scrollbar switch tab tablist tabpanel timer toolbar tooltip tree treegrid treeitem');
  const KNOWN = new Set([...Object.values(ROLES), ...Object.values(INPUTS), ...OTHERS]);
  const SECTIONS = 'article, aside, main, nav, section, [role=article], [role=complementary], [role=main], ' +
    '[role=navigation], [role=region]';
  const labelled = e => has(e, 'aria-label') || has(e, 'aria-labelledby');
  const native = e => {
    const tag = tagOf(e);
    switch (tag) {
      case 'A': case 'AREA': return has(e, 'href') ? 'link' : '';
      case 'FORM': return labelled(e) ? 'form' : '';
      case 'SECTION': return labelled(e) ? 'region' : '';
      case 'HEADER': return closest(e, SECTIONS) ? '' : 'banner';
      case 'FOOTER': return closest(e, SECTIONS) ? '' : 'contentinfo';
      case 'IMG': {
        const told = attr(e, 'alt') !== '' || attr(e, 'title') || labelled(e) || has(e, 'tabindex');
        return told ? 'img' : 'presentation';
      }
      case 'INPUT': return e.list && INPUTS[e.type] === undefined ? 'combobox' : INPUTS[e.type] ?? 'textbox';
      case 'SELECT': return e.multiple || e.size > 1 ? 'listbox' : 'combobox';
      case 'TD': return /^(tree)?grid$/.test(attr(closest(e, 'table') ?? e, 'role') ?? '') ? 'gridcell' : 'cell';
      case 'TH': {
        const scope = attr(e, 'scope') ?? '', beside = [e.previousElementSibling, e.nextElementSibling];
        const by_place = !scope.startsWith('col') && beside.some(other => other && tagOf(other) === 'TD');
        return scope.startsWith('row') || by_place ? 'rowheader' : 'columnheader';
      }
      default: return ROLES[tag] ?? '';
    }
  };
  const focusable = e => has(e, 'tabindex') || has(e, 'href') || /^(BUTTON|SELECT|TEXTAREA|INPUT|DETAILS)$/.test(tagOf(e));
  const roleOf = e => {
    const given = listed((attr(e, 'role') ?? '').toLowerCase()).find(role => KNOWN.has(role) && role);
    return given && !(/^(none|presentation)$/.test(given) && focusable(e)) ? given : native(e);
  };

  // -- names

  const MOST_NAME = 1000, MOST_VALUE = 10000;
  const UNNAMED = new Set(listed('caption code definition deletion emphasis generic insertion mark paragraph ' +
    'presentation strong subscript superscript term time none'));
  const FROM_CONTENT = new Set(listed('button cell checkbox columnheader gridcell heading link menuitem ' +
    'menuitemcheckbox menuitemradio option radio row rowheader switch tab tooltip treeitem'));
  const TYPED = new Set(listed('text password number search tel email url'));
  const byIds = (e, name) => (attr(e, name) ?? '').split(/\s+/).filter(Boolean)
    .map(id => e.getRootNode().getElementById?.(id)).filter(Boolean);
  const fromLabels = (e, seen) => [...(e.labels ?? [])].map(label => textOf(label, seen, 'label')).filter(Boolean).join(' ');
  // `way`: '' for the element's own name; 'inner' within its content; 'label' and 'reference' for who names it.
  const textOf = (e, seen, way) => {
    if (seen.has(e) || (way !== 'reference' && unseen(e)) || IGNORED.has(tagOf(e))) return '';
    seen.add(e);
    const tag = tagOf(e), role = roleOf(e);
    if (way !== 'reference') {
      const named = byIds(e, 'aria-labelledby').map(each => textOf(each, new Set(), 'reference')).join(' ').trim();
      if (named) return named;
    }
    if (way) {
      if (role === 'textbox' || role === 'searchbox') return e.value ?? e.textContent;
      if (tag === 'SELECT') return [...e.selectedOptions].map(option => option.label).join(' ');
      if (/^(progressbar|scrollbar|slider|spinbutton|meter)$/.test(role))
        return attr(e, 'aria-valuetext') ?? attr(e, 'aria-valuenow') ?? String(e.value ?? '');
      if (role === 'menu') return '';
    }
    const label = attr(e, 'aria-label')?.trim();
    if (label) return label;
    const title = attr(e, 'title')?.trim() ?? '';
    if (tag === 'INPUT' && /^(button|submit|reset)$/.test(e.type))
      return e.value.trim() || { submit: 'Submit', reset: 'Reset' }[e.type] || title;
    if (tag === 'INPUT' && e.type === 'file') return fromLabels(e, seen) || 'Choose File';
    if (tag === 'INPUT' && e.type === 'image') return fromLabels(e, seen) || attr(e, 'alt')?.trim() || title || 'Submit';
    if (/^(INPUT|TEXTAREA|SELECT|METER|PROGRESS)$/.test(tag)) {
      const hint = (tag === 'INPUT' && TYPED.has(e.type)) || tag === 'TEXTAREA' ? attr(e, 'placeholder') : '';
      return fromLabels(e, seen) || title || hint || '';
    }
    if (/^(BUTTON|OUTPUT)$/.test(tag) && e.labels?.length) return fromLabels(e, seen);
    const holder = { FIELDSET: 'LEGEND', FIGURE: 'FIGCAPTION', TABLE: 'CAPTION' }[tag];
    const held = holder && [...Element.prototype.querySelectorAll.call(e, `:scope > ${holder}`)][0];
    if (held) return textOf(held, seen, 'label') || title;
    if (tag === 'IMG' || tag === 'AREA') return attr(e, 'alt')?.trim() || title;
    if (tag === 'SVG') return e.querySelector(':scope > title')?.textContent.trim() || title;
    if (FROM_CONTENT.has(role) || way) {
      const inner = innerOf(e, seen);
      if (inner.trim()) return inner;
    }
    return title;
  };
  const innerOf = (e, seen) => {
    let text = content(e, '::before');
    for (const child of childrenOf(e)) {
      if (typeOf(child) === 3) text += child.nodeValue;
      else if (typeOf(child) === 1) {
        const inner = textOf(child, seen, 'inner');
        text += styleOf(child).display === 'inline' && tagOf(child) !== 'BR' ? inner : ` ${inner} `;
      }
    }
    return text + content(e, '::after');
  };
  function* childrenOf(e) {
    const assigned = tagOf(e) === 'SLOT' ? e.assignedNodes() : [];
    if (assigned.length) { yield* assigned; return; }
    const root = shadowOf(e);
    for (let child = firstOf(root ?? e); child; child = nextOf(child)) yield child;
    for (const owned of has(e, 'aria-owns') ? byIds(e, 'aria-owns') : []) yield owned;
  }

  // -- states

  const boolean = (e, name) => {
    const said = attr(e, name)?.toLowerCase();
    return said === 'true' || (said === 'mixed' && said);
  };
  const disabled = e => {
    if (Element.prototype.matches.call(e, ':disabled')) return true;
    for (let each = e; each; each = above(each))
      if (has(each, 'aria-disabled')) return boolean(each, 'aria-disabled') === true;
    return false;
  };
  const checkedOf = e => {
    const own = tagOf(e) === 'INPUT' && /^(checkbox|radio)$/.test(e.type);
    return own ? (e.indeterminate ? 'mixed' : e.checked) : boolean(e, 'aria-checked');
  };
  const states = (e, role) => {
    const found = [], page_of = e.ownerDocument;
    const told = (name, value) => { if (value) found.push(value === true ? ` [${name}]` : ` [${name}=${value}]`); };
    if (/^(checkbox|menuitemcheckbox|option|radio|switch|menuitemradio|treeitem)$/.test(role)) told('checked', checkedOf(e));
    if (focusable(e) || has(e, 'aria-disabled') || role === 'option') told('disabled', disabled(e));
    told('expanded', tagOf(e) === 'DETAILS' ? e.open : boolean(e, 'aria-expanded'));
    told('active', page_of.activeElement === e && e !== page_of.body && page_of.hasFocus());
    if (role === 'heading') told('level', Number(/^H([1-6])$/.exec(tagOf(e))?.[1] ?? attr(e, 'aria-level')) || 0);
    told('pressed', boolean(e, 'aria-pressed'));
    told('selected', tagOf(e) === 'OPTION' ? e.selected : boolean(e, 'aria-selected'));
    return found.join('');
  };

  // -- the tree

  const token = Math.random();  // tells this document from others
  let prefix = null, last = 0, size = 0;
  const numbers = new WeakMap(), found = new Map();
  const idOf = e => {
    let number = numbers.get(e);
    if (!number) { numbers.set(e, number = ++last); found.set(number, new WeakRef(e)); }
    return `${prefix}e${number}`;
  };
  const visit = (into, node, shown) => {
    if (typeOf(node) === 3) {
      if (shown && into.role !== 'textbox') into.children.push(node.nodeValue);
      return;
    }
    if (typeOf(node) !== 1 || IGNORED.has(tagOf(node))) return;
    const e = node, role = roleOf(e) || 'generic', seen = !unseen(e) || drawn(e);
    let own = into;
    if (seen && !/^(presentation|none)$/.test(role)) {
      const inline = styleOf(e).display === 'inline', only = firstOf(e);
      if (role !== 'generic' || !inline || !only || nextOf(only) || typeOf(only) !== 3) {
        const name = UNNAMED.has(role) ? '' : flat(textOf(e, new Set(), '')).slice(0, MOST_NAME);
        const ready = drawn(e) && styleOf(e).pointerEvents !== 'none';
        own = { role, name, e, ready, children: [], extra: [], fixed: labelled(e) };
        into.children.push(own);
        const field = /^(INPUT|TEXTAREA)$/.test(tagOf(e)) && !/^(checkbox|radio|file)$/.test(e.type);
        if (field) own.children.push(e.value.slice(0, MOST_VALUE));
      }
    }
    const gap = seen && (styleOf(e).display !== 'inline' || tagOf(e) === 'BR') ? ' ' : '';
    own.children.push(gap, seen ? content(e, '::before') : '');
    if (role === 'iframe') { const inner = insideOf(e); if (inner) visit(own, inner, true); }
    else for (const child of childrenOf(e)) {
      if (tagOf(e) !== 'DETAILS' || e.open || (typeOf(child) === 1 && tagOf(child) === 'SUMMARY')) visit(own, child, seen);
    }
    own.children.push(seen ? content(e, '::after') : '', gap);
    if (own === into) return;
    if (role === 'link' && has(e, 'href')) own.extra.push(`/url: ${flat(attr(e, 'href').slice(0, MOST_NAME))}`);
    const hint = role === 'textbox' && attr(e, 'placeholder');
    if (hint && flat(hint) !== own.name) own.extra.push(`/placeholder: ${flat(hint)}`);
  };
  const insideOf = frame => { try { return frame.contentDocument?.body ?? null; } catch { return null; } };
  // Joins texts, and leaves out what says nothing: a box around one element, an image without a name, a text said twice.
  const tidy = node => {
    const children = [];
    let text = '';
    const flush = () => { const said = flat(text); if (said) children.push(said); text = ''; };
    const take = child => {
      if (typeof child === 'string') { text += child; return; }
      tidy(child);
      const plain = child.role === 'generic' && !child.extra.length, inner = child.children;
      if (child.role === 'img' && !child.name && !inner.length) return;
      if (plain && node.name && inner.length === 1 && inner[0] === node.name) return;
      if (plain && inner.length <= 1 && inner.every(each => typeof each !== 'string')) {
        if (inner.length) { flush(); children.push(...inner); }
        else if (child.ready && pointed(child.e)) { flush(); children.push(child); }
        return;
      }
      flush();
      children.push(child);
    };
    node.children.forEach(take);
    flush();
    node.children = children.length === 1 && children[0] === node.name ? [] : children;
    if (node.name && !node.fixed && FROM_CONTENT.has(node.role) && node.children.length
        && node.children.some(child => typeof child !== 'string')) node.name = '';
  };
  const pointed = e => styleOf(e).cursor === 'pointer' && !(above(e) && styleOf(above(e)).cursor === 'pointer');
  const write = (node, indent, lines, most) => {
    if (size > most) return;
    const put = line => { size += line.length + 1; if (size <= most) lines.push(line); };
    if (typeof node === 'string') { put(`${indent}- text: ${node}`); return; }
    const name = node.name ? ` ${JSON.stringify(node.name)}` : '', id = node.ready ? ` [ref=${idOf(node.e)}]` : '';
    const head = `${indent}- ${node.role}${name}${states(node.e, node.role)}${id}`;
    const single = !node.extra.length && node.children.length === 1 && typeof node.children[0] === 'string';
    if (single) { put(`${head}: ${node.children[0]}`); return; }
    put(node.children.length || node.extra.length ? `${head}:` : head);
    for (const each of node.extra) put(`${indent}  - ${each}`);
    for (const child of node.children) write(child, `${indent}  `, lines, most);
  };
  // `known` is the document whose ids were told already; another one's begin with `proposed`.
  const tree = (known, proposed, most_elements, most_text, most_tree) => {
    if (known !== token) prefix = proposed;
    const elements = document.getElementsByTagName('*').length, text = document.documentElement?.textContent.length ?? 0;
    const lines = [], told = { title: document.title.slice(0, 200), token, elements, text, cut: false };
    if (elements > most_elements || text > most_text) return { ...told, tree: '' };
    styles = new Map();
    size = 0;
    const root = { role: 'fragment', name: '', children: [], extra: [] };
    if (document.body) visit(root, document.body, true);
    tidy(root);
    for (const child of root.children) write(child, '', lines, most_tree);
    styles = new Map();
    return { ...told, cut: size > most_tree, tree: lines.join('\n') };
  };

  // -- an element by its id

  const elementOf = id => {
    if (prefix === null || !id.startsWith(`${prefix}e`)) return null;
    const e = found.get(Number(id.slice(prefix.length + 1)))?.deref();
    return e?.isConnected ? e : null;
  };
  // Returns where to point at the element, in the page's viewport, or why that cannot be done.
  const pointAt = (e, covered) => {
    styles = new Map();
    if (!drawn(e)) return 'it is not visible';
    e.scrollIntoViewIfNeeded(true);
    let dx = 0, dy = 0;
    for (let view = e.ownerDocument.defaultView; view !== window; view = view.parent) {
      const { left, top } = rectOf(view.frameElement);
      [dx, dy] = [dx + left + view.frameElement.clientLeft, dy + top + view.frameElement.clientTop];
    }
    const rects = [...Element.prototype.getClientRects.call(e)].filter(({ width, height }) => width * height >= 1);
    const view = e.ownerDocument.defaultView;
    const clipped = (rects.length ? rects : [rectOf(e)]).map(({ left, top, right, bottom }) =>
      [Math.max(left, 0), Math.max(top, 0), Math.min(right, view.innerWidth), Math.min(bottom, view.innerHeight)]);
    const seen = clipped.find(([left, top, right, bottom]) => right > left && bottom > top);
    if (!seen) return 'it cannot be scrolled into view';
    const x = (seen[0] + seen[2]) / 2, y = (seen[1] + seen[3]) / 2;
    if (!covered && !hits(e, x, y)) return 'another element covers it';
    return { x: x + dx, y: y + dy };
  };
  const hits = (e, x, y) => {
    let hit = e.ownerDocument.elementFromPoint(x, y);
    for (let root; hit && (root = shadowOf(hit)); hit = root) {
      root = root.elementFromPoint(x, y);
      if (!root || root === hit) break;
    }
    for (let each = hit; each; each = above(each))
      if (each === e || (tagOf(each) === 'LABEL' && each.control === e)) return true;
    return false;
  };
  const takes_files = id => {
    const e = elementOf(id);
    return !e ? null : tagOf(e) !== 'INPUT' || e.type !== 'file' ? 'it is no field that takes files'
      : disabled(e) ? 'it is disabled' : true;
  };
  const changed = e => {
    for (const kind of ['input', 'change']) e.dispatchEvent(new Event(kind, { bubbles: true, composed: true }));
  };
  const point = (id, enabled, covered) => {
    const e = elementOf(id);
    return !e ? null : enabled && disabled(e) ? 'it is disabled' : pointAt(e, covered);
  };
  const focus = id => { const e = elementOf(id); e?.focus(); return e && true; };
  const checked = id => {
    const e = elementOf(id);
    if (!e) return null;
    const role = roleOf(e);
    return /^(checkbox|radio|switch|menuitemcheckbox|menuitemradio|option|treeitem)$/.test(role) ? checkedOf(e) === true
      : 'it is no check box or radio button';
  };
  const SET = new Set(listed('color date time datetime-local month range week'));
  // Returns true where the text is in place, false where it has to be typed over what is selected now, or why neither.
  const fill = (id, text) => {
    let e = elementOf(id);
    if (!e) return null;
    styles = new Map();
    if (tagOf(e) === 'LABEL' && e.control) e = e.control;
    const tag = tagOf(e);
    if (tag !== 'TEXTAREA' && tag !== 'INPUT' && !e.isContentEditable) return 'it is no field that takes text';
    if (!drawn(e)) return 'it is not visible';
    if (disabled(e)) return 'it is disabled';
    if (e.readOnly) return 'it is read-only';
    if (tag === 'INPUT' && SET.has(e.type)) {
      const wanted = e.type === 'color' ? text.toLowerCase() : text.trim();
      e.focus();
      e.value = wanted;
      if (e.value !== wanted) return 'its type of field does not take this text';
      changed(e);
      return true;
    }
    const wrong = tag === 'INPUT' && (!TYPED.has(e.type) || (e.type === 'number' && isNaN(Number(text.trim()))));
    if (wrong) return 'its type of field does not take this text';
    e.focus();
    if (e.isContentEditable) {
      const range = e.ownerDocument.createRange(), selection = e.ownerDocument.defaultView.getSelection();
      range.selectNodeContents(e);
      selection.removeAllRanges();
      selection.addRange(range);
    } else e.select();
    return false;
  };
  // Returns the labels of all options where one of those wanted is not there, true where they are selected, or why not.
  const select = (id, wanted) => {
    const e = elementOf(id);
    if (!e) return null;
    if (tagOf(e) !== 'SELECT') return 'it is no list to select from';
    if (disabled(e)) return 'it is disabled';
    const options = [...e.options].slice(0, 1000);
    const chosen = wanted.map(each => options.find(option => option.label.trim() === each || option.value === each));
    if (chosen.includes(undefined))
      return [wanted[chosen.indexOf(undefined)], options.slice(0, 10).map(option => option.label.trim().slice(0, 100))];
    e.focus();
    if (e.multiple) for (const option of options) option.selected = chosen.includes(option);
    else chosen[0].selected = true;
    changed(e);
    return true;
  };

  // -- whether the page moves on

  let leaving = false;
  self.navigation?.addEventListener('navigate', event => {
    if (!event.destination.sameDocument && event.downloadRequest === null) leaving = true;
  });
  for (const ended of ['navigatesuccess', 'navigateerror'])
    self.navigation?.addEventListener(ended, () => { leaving = false; });
  // Returns whether the document is whole and stays, after everything that was to be done at once.
  const rests = () => new Promise(done => {
    const channel = new MessageChannel();
    channel.port1.onmessage = () => done(document.readyState === 'complete' && !leaving);
    channel.port2.postMessage(null);
  });

  const look = async (...how) => await rests() ? tree(...how) : null;

  // Called where what seemed to lead to another document was a download.
  const stays = () => { leaving = false; };

  return { checked, element: elementOf, fill, focus, look, point, rests, select, stays, takes_files, tree };
})();
