// Files that are sent with a prompt: chosen, dropped or pasted, and encoded as base64.

import { announce, fill, h, iconButton } from './dom.js';
import { bytes } from './format.js';

/** The largest total size. The server may accept less. */
const LARGEST = 20000000;

/** A list of attachments with a file chooser. */
export class Attachments {
  constructor() {
    /** @type {File[]} */
    this.files = [];
    this.chooser = h('input', {
      type: 'file',
      multiple: true,
      hidden: true,
      'aria-label': 'Attach files',
      tabindex: '-1',
    });
    this.chooser.addEventListener('change', () => {
      this.add([...this.chooser.files]);
      this.chooser.value = '';
    });
    this.button = iconButton('clip', 'Attach files', () => this.chooser.click());
    this.list = h('ul.attachments', { 'aria-label': 'Attachments' });
  }

  /** Accepts files that are dropped on or pasted into an element. */
  acceptFrom(element) {
    element.addEventListener('dragover', (event) => {
      event.preventDefault();
      element.classList.add('dragging');
    });
    element.addEventListener('dragleave', () => element.classList.remove('dragging'));
    element.addEventListener('drop', (event) => {
      event.preventDefault();
      element.classList.remove('dragging');
      this.add([...event.dataTransfer.files]);
    });
    element.addEventListener('paste', (event) => {
      const files = [...(event.clipboardData?.files ?? [])];
      if (files.length) {
        event.preventDefault();
        this.add(files);
      }
    });
  }

  add(files) {
    for (const file of files) {
      const total = this.files.reduce((sum, other) => sum + other.size, file.size);
      if (total > LARGEST) announce(`${file.name} is too large: attachments may have ${bytes(LARGEST)} in total`);
      else this.files.push(file);
    }
    this.show();
  }

  show() {
    fill(
      this.list,
      this.files.map((file) =>
        h(
          'li',
          {},
          h('span.file-path', {}, file.name),
          h('span.note', {}, bytes(file.size)),
          iconButton('close', `Remove ${file.name}`, () => {
            this.files = this.files.filter((other) => other !== file);
            this.show();
            this.button.focus();
          }),
        ),
      ),
    );
  }

  clear() {
    this.files = [];
    this.show();
  }

  /** Returns the files as the server takes them. */
  encode() {
    return Promise.all(this.files.map(async (file) => ({ name: file.name, data: await base64(file) })));
  }
}

function base64(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(String(reader.result).replace(/^[^,]*,/, ''));
    reader.onerror = () => reject(new Error(`${file.name} could not be read`));
    reader.readAsDataURL(file);
  });
}
