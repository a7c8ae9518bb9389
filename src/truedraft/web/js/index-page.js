// @ts-check
Page.start();
