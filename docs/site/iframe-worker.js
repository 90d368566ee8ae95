// Browsers start no worker for a page that is a file. There a frame does the work of the search's worker.
if (location.protocol === "file:")
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.appendChild(frame);
      this.inner = frame.contentWindow;
      this.ready = new Promise((done) => {
        const inner = frame.contentDocument;
        const load = (from) => new Promise((loaded) => {
          const script = inner.createElement("script");
          script.src = from;
          script.onload = loaded;
          inner.body.appendChild(script);
        });
        this.inner.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
        this.inner.importScripts = (...all) =>
          all.reduce((before, from) => before.then(() => load(from)), Promise.resolve());
        load(url).then(done);
      });
    }
    postMessage(data) {
      this.ready.then(() => this.inner.dispatchEvent(new MessageEvent("message", { data })));
    }
  };
